"""`InferenceRequest` as models see it: one that they got, or one that they make to call another
model (BLS). Any thread of the model may call (PB-022, PB-040 to PB-045).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from serving.backends.python.pb_utils import calls, process
from serving.backends.python.pb_utils.errors import TritonModelException
from serving.backends.python.pb_utils.responses import (
    InferenceResponse,
    ResponseSender,
    checked_parameters,
    parameters_json,
)
from serving.backends.python.pb_utils.tensor import Tensor
from serving.request import InferenceRequest as CoreRequest
from serving.request import InputTensor, RequestedOutput
from serving.response import ParameterValue

if TYPE_CHECKING:
    import asyncio  # most models need no loop, and start sooner without it

FLAG_SEQUENCE_START = 1
FLAG_SEQUENCE_END = 2
RELEASE_ALL = 1
RELEASE_RESCHEDULE = 2
_making_sender = threading.Lock()


class InferenceTrace:
    """Ties a call of another model to the request on whose behalf it is made: it is cancelled with
    it, and is part of its trace (PB-047, TRC-007).
    """

    __slots__ = ("_core",)

    def __init__(self, core: CoreRequest) -> None:
        self._core = core

    def get_context(self) -> str | None:
        """W3C trace context as JSON, `{"traceparent": "..."}`, for spans of the model's own; None
        where the request is not traced by OpenTelemetry (TRC-009).
        """
        context = self._core.trace_context
        return f'{{"traceparent":"{context}"}}' if context else None


class InferenceRequest:
    __slots__ = ("_came", "_core", "_inputs", "_memory", "_outputs", "_sender", "_states", "_trace")

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] | None = None,
        requested_output_names: Sequence[str] | None = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: object = None,
        trace: InferenceTrace | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        """`timeout` in microseconds, 0 for none. Output tensors are in CPU memory always."""
        for name, value in (
            ("inputs", inputs),
            ("requested_output_names", requested_output_names),
            ("model_name", model_name),
        ):
            if value is None:
                raise TypeError(f"an InferenceRequest needs the argument {name}")
        self._inputs: list[Tensor] | None = list(inputs or ())
        for tensor in self._inputs:
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"inputs must hold pb_utils.Tensor objects, found {type(tensor).__name__}"
                )
        self._outputs = list(requested_output_names or ())
        self._sender: ResponseSender | None = None
        self._came = False
        self._states: frozenset[str] = frozenset()
        self._memory = preferred_memory
        self._trace = trace
        self._core = CoreRequest(
            model_name or "",
            model_version,
            request_id,
            parameters=checked_parameters(parameters),
            correlation_id=correlation_id,
            timeout_us=timeout,
        )
        self.set_flags(flags)

    @classmethod
    def _of(
        cls,
        core: CoreRequest,
        all_outputs: list[str],
        is_decoupled: bool,
        states: frozenset[str] = frozenset(),
    ) -> InferenceRequest:
        """`states`: outputs that are wanted whatever is requested."""
        request = cls.__new__(cls)
        request._core = core
        request._inputs = None
        request._outputs = all_outputs
        request._came = True
        request._states = states
        # Few models ask for one; that of a decoupled model also hears when nobody can answer.
        request._sender = ResponseSender(core, True, states) if is_decoupled else None
        request._memory = request._trace = None
        return request

    def inputs(self) -> list[Tensor]:
        if self._inputs is None:
            self._inputs = []
            for item in self._core.inputs.values():
                self._inputs.append(Tensor._of(item.name, item.array, item.datatype))
        return self._inputs

    def request_id(self) -> str:
        return self._core.id

    def correlation_id(self) -> int | str:
        return self._core.correlation_id

    def flags(self) -> int:
        start = FLAG_SEQUENCE_START if self._core.sequence_start else 0
        return start | (FLAG_SEQUENCE_END if self._core.sequence_end else 0)

    def set_flags(self, flags: int) -> None:
        self._core.sequence_start = bool(flags & FLAG_SEQUENCE_START)
        self._core.sequence_end = bool(flags & FLAG_SEQUENCE_END)

    def timeout(self) -> int:
        return self._core.timeout_us

    def parameters(self) -> str:
        return parameters_json(self._core.parameters)

    def requested_output_names(self) -> set[str]:
        return set(self._core.output_names or self._outputs)

    def model_name(self) -> str:
        return self._core.model_name

    def model_version(self) -> int:
        return self._core.model_version

    def is_cancelled(self) -> bool:
        process.poll()
        return self._core.is_cancelled

    def get_response_sender(self) -> ResponseSender:
        if not self._came:
            raise TritonModelException("a request that the model made itself has no sender")
        if self._sender is None:
            self._make_sender()
        assert self._sender is not None
        return self._sender

    def _make_sender(self) -> None:
        with _making_sender:
            if self._sender is None:
                self._sender = ResponseSender(self._core, False, self._states)

    def set_release_flags(self, flags: int) -> None:
        """RELEASE_RESCHEDULE: execute this request once more instead of answering it for good."""
        if flags not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException(
                "set_release_flags takes TRITONSERVER_REQUEST_RELEASE_ALL or "
                f"TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, not {flags!r}"
            )
        if not self._came:
            raise TritonModelException("a request that the model made itself is not released")
        self.get_response_sender().is_rescheduled = flags == RELEASE_RESCHEDULE

    def preferred_memory(self) -> object:
        return self._memory

    def trace(self) -> InferenceTrace:
        return self._trace or InferenceTrace(self._core)

    def exec(self, decoupled: bool = False) -> InferenceResponse | calls.ResponseIterator:
        """Call the model and wait: its response, or with `decoupled` an iterator over them.

        What goes wrong there comes as a response with an error. May be called from any thread, in
        execute and until the model is finalized.
        """
        call = calls.start(self._called(), decoupled, self._caller())
        if isinstance(call, InferenceResponse):
            return calls.ResponseIterator.over(call) if decoupled else call
        return calls.ResponseIterator(call) if decoupled else calls.wait(call)

    def async_exec(
        self, decoupled: bool = False
    ) -> asyncio.Future[InferenceResponse | calls.ResponseIterator]:
        """Like `exec`, to be awaited; it has started when this returns."""
        return calls.start_async(self._called(), decoupled, self._caller())

    def _caller(self) -> CoreRequest | None:
        return None if self._trace is None else self._trace._core

    def _called(self) -> CoreRequest:
        if self._came:
            raise TritonModelException(
                "this request came to the model; make an InferenceRequest to call another one"
            )
        core = self._core
        core.inputs = {}
        for tensor in self._inputs or ():
            array = tensor._core_array
            core.inputs[tensor.name()] = InputTensor(
                tensor.name(), tensor._core_datatype, array.shape, array
            )
        core.requested_outputs = [RequestedOutput(name) for name in self._outputs]
        return core
