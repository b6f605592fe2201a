"""One running `TritonPythonModel`: calls execute and turns what it returns into responses.

Main thread of an instance process. Behaviour after the Python backend's contract (spec PB-005,
PB-006, PB-028, PB-029): a list with one response for each request in the default mode, None for a
decoupled model.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from serving.backends.base import ExecutionTimes, ModelContext, ModelInstance
from serving.backends.python.model_file import describe
from serving.backends.python.pb_utils import metrics, process
from serving.backends.python.pb_utils.inference import InferenceRequest
from serving.backends.python.pb_utils.responses import InferenceResponse, core_response
from serving.errors import BackendError
from serving.request import InferenceRequest as CoreRequest
from serving.response import InferenceResponse as CoreResponse

if TYPE_CHECKING:
    from concurrent.futures import Future

    from serving.backends.python.event_loop import EventLoop


class PythonInstance(ModelInstance):
    def __init__(self, context: ModelContext, name: str, model: Any) -> None:
        self._context = context
        self._name = name
        self._model = model
        self._outputs = list(context.spec.outputs)
        self._states = frozenset(state.output_name for state in context.spec.states)
        self._is_decoupled = context.spec.is_decoupled
        self._event_loop: EventLoop | None = None
        sequences = context.spec.sequence_batching
        self._may_overlap = self._is_decoupled and not sequences.is_iterative
        """A coroutine of a decoupled model goes on while the next batch is executed (PB-006)."""
        metrics.flush()
        process.enter(process.Stage.RUNNING)

    def execute(self, requests: Sequence[CoreRequest], times: ExecutionTimes) -> None:
        wrapped = []
        for request in requests:
            wrapped.append(
                InferenceRequest._of(request, self._outputs, self._is_decoupled, self._states)
            )
        try:
            returned = self._model.execute(wrapped)
            if type(returned) is not list and inspect.iscoroutine(returned):
                running = self._loop().run(returned)
                if self._may_overlap:
                    running.add_done_callback(lambda done: self._end_overlapping(requests, done))
                    return
                returned = running.result()
        except Exception as error:
            raise self._failed(error) from error
        times.output_start_ns = time.monotonic_ns()
        if self._is_decoupled:
            self._check_none(returned)
            self._reschedule(wrapped)
            return
        for request, response in zip(requests, self._checked(wrapped, returned), strict=True):
            if response is not None:
                request.respond(response)
        self._reschedule(wrapped)

    @staticmethod
    def _reschedule(wrapped: list[InferenceRequest]) -> None:
        for request in wrapped:
            sender = request._sender
            if sender is not None and sender.is_rescheduled and not sender.is_closed:
                sender.is_closed = True
                request._core.reschedule()

    @property
    def has_ready_hook(self) -> bool:
        return callable(getattr(self._model, "is_ready", None))

    def is_ready(self) -> bool:
        """Raises: BackendError when the hook does not return bool, or whatever it raises."""
        answer = self._model.is_ready()
        if inspect.iscoroutine(answer):
            answer = self._loop().run(answer).result()
        if not isinstance(answer, bool):
            raise BackendError(f"is_ready must return bool, found type '{type(answer).__name__}'")
        return answer

    def before_send(self) -> None:
        metrics.flush()

    def close(self) -> None:
        process.enter(process.Stage.FINALIZING)
        finalize = getattr(self._model, "finalize", None)
        if finalize is None:
            return
        try:
            finalize()
        except Exception as error:
            raise BackendError(describe(error, self._context)) from error

    def _loop(self) -> EventLoop:
        if self._event_loop is None:
            # Most models need no loop, and start sooner without it.
            from serving.backends.python.event_loop import EventLoop

            self._event_loop = EventLoop()
        return self._event_loop

    def _end_overlapping(self, requests: Sequence[CoreRequest], done: Future[Any]) -> None:
        """The coroutine of a batch has ended, in the thread of the loop."""
        error = done.exception()
        failure = None if error is None else self._failed(error)
        if error is None:
            try:
                self._check_none(done.result())
            except BackendError as refused:
                failure = refused
        if failure is not None:
            for request in requests:
                with contextlib.suppress(RuntimeError):  # it has been answered
                    request.respond_error(failure)

    def _check_none(self, returned: object) -> None:
        if returned is not None:
            raise self._refused(
                "a decoupled model must return None from execute and answer through response "
                f"senders, found type '{type(returned).__name__}'"
            )

    def _failed(self, error: BaseException) -> BackendError:
        return BackendError(
            f"Failed to process the request(s) for model instance '{self._name}', message: "
            f"{describe(error, self._context)}"
        )

    def _checked(
        self, wrapped: list[InferenceRequest], returned: object
    ) -> list[CoreResponse | None]:
        """Core responses, None where a sender has answered already.

        Raises: BackendError, for the whole batch, when the return value breaks the contract.
        """
        if returned is None and all(map(_is_settled, wrapped)):
            return [None] * len(wrapped)
        if not isinstance(returned, list) or len(returned) != len(wrapped):
            raise self._refused(_wrong_list(len(wrapped), returned))
        checked: list[CoreResponse | None] = []
        for request, response in zip(wrapped, returned, strict=True):
            if request._sender is None and isinstance(response, InferenceResponse):
                checked.append(core_response(response, request._core, self._states))
            else:
                checked.append(self._checked_one(request, response))
        return checked

    def _checked_one(self, request: InferenceRequest, response: object) -> CoreResponse | None:
        sender = request.get_response_sender()
        if sender.is_rescheduled and response is not None:
            raise self._refused(
                "expected None in the execute function response list for a request that is to be "
                f"rescheduled, found type '{type(response).__name__}'"
            )
        if isinstance(response, InferenceResponse):
            if sender.is_used:
                raise self._refused(
                    "a request was answered through its response sender and in the list as well"
                )
            return core_response(response, request._core, self._states)
        if response is None and (sender.is_closed or sender.is_rescheduled):
            return None
        if response is None:
            raise self._refused(
                "the list holds None for a request that no response sender has answered with the "
                "final flag"
            )
        raise self._refused(
            "expected an 'InferenceResponse' object in the execute function response list, found "
            f"type '{type(response).__name__}'"
        )

    def _refused(self, text: str) -> BackendError:
        return BackendError(
            f"Failed to process the request(s) for model instance '{self._name}', message: {text}"
        )


def _is_settled(request: InferenceRequest) -> bool:
    """Its response sender has answered it for good, or it is to be executed once more."""
    sender = request._sender
    return sender is not None and (sender.is_closed or sender.is_rescheduled)


def _wrong_list(expected: int, returned: object) -> str:
    text = f"expected a list of {expected} InferenceResponse objects, one for each request"
    if not isinstance(returned, list):
        return f"{text}, found type '{type(returned).__name__}'"
    return (
        f"{text}: the number of InferenceResponse objects does not match the number of "
        f"InferenceRequest objects: {expected} request(s), {len(returned)} response(s)"
    )
