"""Calls of other models: started, waited for, iterated over, awaited (PB-041 to PB-044).

Any thread; futures belong to the event loop that called.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from serving.backends.child_services import ModelCall
from serving.backends.python.pb_utils import process
from serving.backends.python.pb_utils.errors import TritonError, TritonModelException
from serving.backends.python.pb_utils.responses import InferenceResponse
from serving.errors import ServingError
from serving.request import InferenceRequest as CoreRequest
from serving.response import InferenceResponse as CoreResponse

if TYPE_CHECKING:
    import asyncio  # most models need no loop, and start sooner without it


class ResponseIterator:
    """The responses of a call with decoupled=True, as they come. The last one may be empty."""

    def __init__(self, call: ModelCall | None) -> None:
        self._call = call
        self._left: InferenceResponse | None = None

    @classmethod
    def over(cls, response: InferenceResponse) -> ResponseIterator:
        """Of a call that could not even start."""
        iterator = cls(None)
        iterator._left = response
        return iterator

    def __iter__(self) -> Iterator[InferenceResponse]:
        return self

    def __next__(self) -> InferenceResponse:
        if (left := self._take_left()) is not None:
            return left
        if self._call is None:
            raise StopIteration
        return self._taken(_next(self._call))

    def __aiter__(self) -> AsyncIterator[InferenceResponse]:
        return self

    async def __anext__(self) -> InferenceResponse:
        if (left := self._take_left()) is not None:
            return left
        import asyncio

        call = self._call
        if call is None:
            raise StopAsyncIteration
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        call.on_news = lambda: _tell(loop, news.set)
        while (core := call.take()) is None:
            await news.wait()
            news.clear()
        return self._taken(core)

    def cancel(self) -> None:
        """The model that was called is told; its last response comes nevertheless."""
        if self._call is not None:
            self._call.cancel()

    def _take_left(self) -> InferenceResponse | None:
        left, self._left = self._left, None
        return left

    def _taken(self, core: CoreResponse) -> InferenceResponse:
        if core.is_final:
            self._call = None
        return InferenceResponse._of(core)


def start(
    core: CoreRequest, is_decoupled: bool, caller: CoreRequest | None
) -> ModelCall | InferenceResponse:
    """A response with an error when the call cannot even be sent."""
    child = process.child_for_calls()
    try:
        return child.call(core, is_decoupled=is_decoupled, caller=caller)
    except ServingError as error:
        return InferenceResponse(error=TritonError._of(error))


def wait(call: ModelCall) -> InferenceResponse:
    return InferenceResponse._of(_next(call))


def start_async(
    core: CoreRequest, is_decoupled: bool, caller: CoreRequest | None
) -> asyncio.Future[InferenceResponse | ResponseIterator]:
    import asyncio

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[InferenceResponse | ResponseIterator] = loop.create_future()
    child = process.child_for_calls()
    call: ModelCall | None = None

    def settle() -> None:
        if not answer.done() and call is not None and (core_answer := call.take()) is not None:
            answer.set_result(InferenceResponse._of(core_answer))

    try:
        call = child.call(
            core,
            is_decoupled=is_decoupled,
            caller=caller,
            on_news=lambda: None if is_decoupled else _tell(loop, settle),
        )
    except ServingError as error:
        failed = InferenceResponse(error=TritonError._of(error))
        answer.set_result(ResponseIterator.over(failed) if is_decoupled else failed)
        return answer
    if is_decoupled:
        answer.set_result(ResponseIterator(call))
    else:
        answer.add_done_callback(lambda done: call.cancel() if done.cancelled() else None)
    return answer


def _next(call: ModelCall) -> CoreResponse:
    try:
        return call.wait()
    except ServingError as error:
        raise TritonModelException(error.message) from error


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """Leading thread. The loop may have been closed since."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what)
