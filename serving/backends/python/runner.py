"""One running `TritonPythonModel`: calls execute and turns what it returns into responses.

Main thread of an instance process. Behaviour after the Python backend's contract (spec PB-005,
PB-006, PB-028, PB-029): a list with one response for each request in the default mode, None for a
decoupled model.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from serving.backends.base import ExecutionTimes, ModelContext, ModelInstance
from serving.backends.python.model_file import describe
from serving.backends.python.pb_utils.inference import (
    InferenceRequest,
    InferenceResponse,
    core_response,
)
from serving.errors import BackendError
from serving.request import InferenceRequest as CoreRequest
from serving.response import InferenceResponse as CoreResponse

if TYPE_CHECKING:
    import asyncio


class PythonInstance(ModelInstance):
    def __init__(self, context: ModelContext, name: str, model: Any) -> None:
        self._context = context
        self._name = name
        self._model = model
        self._outputs = list(context.spec.outputs)
        self._states = frozenset(state.output_name for state in context.spec.states)
        self._is_decoupled = context.spec.is_decoupled
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def execute(self, requests: Sequence[CoreRequest], times: ExecutionTimes) -> None:
        wrapped = [
            InferenceRequest._of(request, self._outputs, self._is_decoupled, self._states)
            for request in requests
        ]
        try:
            returned = self._model.execute(wrapped)
            if inspect.iscoroutine(returned):
                returned = self._run(returned)
        except Exception as error:
            raise BackendError(
                f"Failed to process the request(s) for model instance '{self._name}', message: "
                f"{describe(error, self._context)}"
            ) from error
        times.output_start_ns = time.monotonic_ns()
        if self._is_decoupled:
            if returned is not None:
                raise self._refused(
                    "a decoupled model must return None from execute and answer through response "
                    f"senders, found type '{type(returned).__name__}'"
                )
            self._reschedule(wrapped)
            return
        for request, response in zip(requests, self._checked(wrapped, returned), strict=True):
            if response is not None:
                request.respond(response)
        self._reschedule(wrapped)

    @staticmethod
    def _reschedule(wrapped: list[InferenceRequest]) -> None:
        for request in wrapped:
            sender = request.get_response_sender()
            if sender.is_rescheduled and not sender.is_closed:
                sender.is_closed = True
                request._core.reschedule()

    def close(self) -> None:
        finalize = getattr(self._model, "finalize", None)
        if finalize is None:
            return
        try:
            finalize()
        except Exception as error:
            raise BackendError(describe(error, self._context)) from error

    def _run(self, coroutine: Any) -> Any:
        if self._event_loop is None:
            import asyncio  # most models need no loop, and start sooner without it

            self._event_loop = asyncio.new_event_loop()
        return self._event_loop.run_until_complete(coroutine)

    def _checked(
        self, wrapped: list[InferenceRequest], returned: object
    ) -> list[CoreResponse | None]:
        """Core responses, None where a sender has answered already.

        Raises: BackendError, for the whole batch, when the return value breaks the contract.
        """
        expected = f"a list of {len(wrapped)} InferenceResponse objects, one for each request"
        senders = [item.get_response_sender() for item in wrapped]
        if returned is None and all(item.is_closed or item.is_rescheduled for item in senders):
            return [None] * len(wrapped)
        if not isinstance(returned, list):
            raise self._refused(f"expected {expected}, found type '{type(returned).__name__}'")
        if len(returned) != len(wrapped):
            raise self._refused(
                f"expected {expected}: the number of InferenceResponse objects does not match the "
                f"number of InferenceRequest objects: {len(wrapped)} request(s), {len(returned)} "
                "response(s)"
            )
        return [
            self._checked_one(request, response)
            for request, response in zip(wrapped, returned, strict=True)
        ]

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
