"""`InferenceRequest`, `InferenceResponse` and the response sender, as models see them.

Requests made by the core wrap a core request; requests made by a model (BLS) can be built and read
but not yet executed. A sender may be used from any thread of the model (PB-022, 023, 028, 040).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from serving.backends.python.pb_utils.errors import (
    TritonError,
    TritonModelException,
    unsupported,
)
from serving.backends.python.pb_utils.tensor import Tensor
from serving.request import InferenceRequest as CoreRequest
from serving.response import InferenceResponse as CoreResponse
from serving.response import OutputTensor, ParameterValue

FLAG_SEQUENCE_START = 1
FLAG_SEQUENCE_END = 2
RESPONSE_COMPLETE_FINAL = 1
RELEASE_ALL = 1
RELEASE_RESCHEDULE = 2


class InferenceResponse:
    __slots__ = ("_error", "_output_tensors", "_parameters")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        self._output_tensors = list(output_tensors)
        for tensor in self._output_tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    "output_tensors must hold pb_utils.Tensor objects, found "
                    f"{type(tensor).__name__}"
                )
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"error must be a pb_utils.TritonError, not {type(error).__name__}")
        self._error = error
        self._parameters = _checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        return self._output_tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        return _json(self._parameters)


def _json(parameters: Mapping[str, ParameterValue]) -> str:
    return json.dumps(parameters, separators=(",", ":"), ensure_ascii=False)


def _checked_parameters(
    parameters: Mapping[str, ParameterValue] | None,
) -> dict[str, ParameterValue]:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a dict, not {type(parameters).__name__}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TypeError(f"a parameter's name must be str, not {type(key).__name__}")
        if not isinstance(value, (bool, int, str, float)):
            raise TypeError(
                f"parameter '{key}' must be bool, int, str or float, not {type(value).__name__}"
            )
    return dict(parameters)


class InferenceRequest:
    __slots__ = ("_core", "_inputs", "_outputs", "_sender")

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: object = None,
        trace: object = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        if not model_name:
            raise TritonModelException("an InferenceRequest needs a model_name")
        if not requested_output_names:
            raise TritonModelException("an InferenceRequest needs requested_output_names")
        self._inputs: list[Tensor] | None = list(inputs)
        self._outputs = list(requested_output_names)
        self._sender: ResponseSender | None = None
        self._core = CoreRequest(
            model_name,
            model_version,
            request_id,
            parameters=_checked_parameters(parameters),
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
        request._outputs = core.output_names or all_outputs
        request._sender = ResponseSender(core, is_decoupled, states)
        return request

    def inputs(self) -> list[Tensor]:
        if self._inputs is None:
            self._inputs = [Tensor(item.name, item.array) for item in self._core.inputs.values()]
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
        return _json(self._core.parameters)

    def requested_output_names(self) -> list[str]:
        return self._outputs

    def model_name(self) -> str:
        return self._core.model_name

    def model_version(self) -> int:
        return self._core.model_version

    def is_cancelled(self) -> bool:
        return self._core.is_cancelled

    def get_response_sender(self) -> ResponseSender:
        if self._sender is None:
            raise TritonModelException("a request that the model made itself has no sender")
        return self._sender

    def set_release_flags(self, flags: int) -> None:
        """RELEASE_RESCHEDULE: execute this request once more instead of answering it for good."""
        if flags not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException(
                "set_release_flags takes TRITONSERVER_REQUEST_RELEASE_ALL or "
                f"TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, not {flags!r}"
            )
        if self._sender is None:
            raise TritonModelException("a request that the model made itself is not released")
        self._sender.is_rescheduled = flags == RELEASE_RESCHEDULE

    def preferred_memory(self) -> object:
        return None

    def trace(self) -> object:
        return unsupported("a request's trace")

    def exec(self, decoupled: bool = False) -> object:
        return unsupported("calling another model (InferenceRequest.exec)")

    def async_exec(self, decoupled: bool = False) -> object:
        return unsupported("calling another model (InferenceRequest.async_exec)")


class ResponseSender:
    """Sends the responses of one request. In the default mode: one response, then FINAL."""

    __slots__ = (
        "_core",
        "_held",
        "_is_decoupled",
        "_lock",
        "_states",
        "is_closed",
        "is_rescheduled",
        "is_used",
    )

    def __init__(self, core: CoreRequest, is_decoupled: bool, states: frozenset[str]) -> None:
        self._core = core
        self._states = states
        self._is_decoupled = is_decoupled
        self._held: CoreResponse | None = None
        """The one response of the default mode, until FINAL."""
        self._lock = threading.Lock()
        self.is_closed = False
        self.is_used = False
        self.is_rescheduled = False
        """The model wants to execute the request once more (PB-030)."""

    def is_cancelled(self) -> bool:
        return self._core.is_cancelled

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if flags not in (0, RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(
                f"unable to send response: flags must be 0 or "
                f"TRITONSERVER_RESPONSE_COMPLETE_FINAL, not {flags!r}"
            )
        if response is None and not flags:
            raise TritonModelException("unable to send response: it is needed when flags are 0")
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(
                f"unable to send response: expected an InferenceResponse, not "
                f"{type(response).__name__}"
            )
        with self._lock:
            if self.is_closed:
                raise TritonModelException(
                    "unable to send response: the response sender is closed, the final flag has "
                    "been sent"
                )
            self._send(response, is_final=bool(flags))

    def _send(self, response: InferenceResponse | None, *, is_final: bool) -> None:
        self.is_used = True
        answer = None if response is None else core_response(response, self._core, self._states)
        if self._is_decoupled:
            if answer is None:
                answer = CoreResponse(
                    self._core.model_name, self._core.model_version, self._core.id, is_null=True
                )
            self.is_closed = is_final
            answer.is_final = is_final
            self._core.respond(answer)
            return
        if answer is not None and self._held is not None:
            raise TritonModelException(
                "unable to send response: a model that is not decoupled sends one response only"
            )
        self._held = answer or self._held
        if is_final:
            if self._held is None:
                raise TritonModelException(
                    "unable to send response: a model that is not decoupled sends a response "
                    "before the final flag"
                )
            self.is_closed = True
            self._core.respond(self._held)


def core_response(
    response: InferenceResponse, request: CoreRequest, states: frozenset[str]
) -> CoreResponse:
    """The core's form; outputs that nobody asked for are left out, but for the `states`."""
    answer = CoreResponse(request.model_name, request.model_version, request.id)
    if response._error is not None:
        answer.error = response._error._core_error()
        return answer
    wanted = request.output_names
    for tensor in response._output_tensors:
        if not wanted or tensor.name() in wanted or tensor.name() in states:
            array = tensor._core_array
            answer.outputs.append(
                OutputTensor(tensor.name(), tensor._core_datatype, array.shape, array)
            )
    answer.parameters = response._parameters
    return answer
