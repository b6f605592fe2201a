"""One request of a program to the server in its own process: sent to the loop, answered elsewhere.

`Call` gives a future of the one answer; `Stream` and `AsyncStream` give the answers one by one.
Requests begin, and responses are taken, on the server's loop thread; the rest is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING

from serving.errors import InvalidArgumentError, ServingError, UnavailableError
from serving.in_process_tensors import Draft, Response, response_of
from serving.request import InferenceRequest
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.server_thread import ServerThread

_Item = Response | ServingError | None
"""None: nothing more comes."""


class _Call:
    """What all calls share: the request is made on the loop, by the config of its model."""

    def __init__(self, thread: ServerThread, draft: Draft) -> None:
        self._thread = thread
        self._draft = draft
        self._request: InferenceRequest | None = None

    def _begin(self, take: Callable[[InferenceResponse], None], *, is_single: bool) -> None:
        """Loop thread. Raises ServingError before anything is sent."""
        draft, server = self._draft, self._thread.server
        spec = server.receiver(draft.name, draft.version).spec
        if is_single and spec.is_decoupled:
            raise InvalidArgumentError(
                f"model '{draft.name}' is decoupled: it may send any number of responses; use "
                "stream"
            )
        request = self._request = draft.request(spec)
        request.on_response = take
        server.infer(request)

    def _cancel(self) -> None:
        """Any thread."""
        with contextlib.suppress(UnavailableError):  # the server has stopped, and all requests
            self._thread.post(self._cancel_request)

    def _cancel_request(self) -> None:
        if self._request is not None:
            self._request.cancel()


class Call(_Call):
    """One request with one answer."""

    def __init__(self, thread: ServerThread, draft: Draft) -> None:
        super().__init__(thread, draft)
        self.answer: Future[Response] = Future()
        """Cancelling it cancels the request."""
        self.answer.add_done_callback(self._done)
        thread.post(self._start)

    def _start(self) -> None:
        if self.answer.cancelled():
            return
        try:
            self._begin(self._take, is_single=True)
        except ServingError as error:
            self._end(error)

    def _take(self, response: InferenceResponse) -> None:
        if response.is_final:
            self._end(response.error or response_of(response))

    def _end(self, outcome: Response | ServingError) -> None:
        if not self.answer.set_running_or_notify_cancel():
            return
        if isinstance(outcome, ServingError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)

    def _done(self, answer: Future[Response]) -> None:
        if answer.cancelled():
            self._cancel()


class _Answers(_Call):
    """What comes back to a request that may have any number of answers."""

    def __init__(self, thread: ServerThread, draft: Draft, put: Callable[[_Item], None]) -> None:
        super().__init__(thread, draft)
        self._put = put
        self._is_over = False
        thread.post(self._start)

    def _start(self) -> None:
        try:
            self._begin(self._take, is_single=False)
        except ServingError as error:
            self._put(error)
            self._put(None)

    def _take(self, response: InferenceResponse) -> None:
        if response.error is not None:
            self._put(response.error)
        elif not response.is_null:
            self._put(response_of(response))
        if response.is_final:
            self._put(None)

    def close(self) -> None:
        """No more answers are wanted: what is not computed yet need not be."""
        if not self._is_over:
            self._is_over = True
            self._cancel()

    def _opened(self, item: _Item) -> Response | None:
        """An answer, or None at the end. Raises what went wrong."""
        if item is None:
            self._is_over = True
        if isinstance(item, ServingError):
            raise item
        return item


class Stream(_Answers, Iterator[Response]):
    """Answers as they come, for a thread that waits for them. An error is raised in its place."""

    def __init__(self, thread: ServerThread, draft: Draft) -> None:
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        super().__init__(thread, draft, self._items.put)

    def __next__(self) -> Response:
        answer = None if self._is_over else self._opened(self._items.get())
        if answer is None:
            raise StopIteration
        return answer

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncStream(_Answers, AsyncIterator[Response]):
    """Answers as they come, for a coroutine on the caller's own loop."""

    def __init__(self, thread: ServerThread, draft: Draft) -> None:
        items: asyncio.Queue[_Item] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: _Item) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(items.put_nowait, item)

        self._items = items
        super().__init__(thread, draft, put)

    async def __anext__(self) -> Response:
        try:
            answer = None if self._is_over else self._opened(await self._items.get())
        except asyncio.CancelledError:
            self.close()
            raise
        if answer is None:
            raise StopAsyncIteration
        return answer

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
