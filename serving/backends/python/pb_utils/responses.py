"""`InferenceResponse` and the response sender, as models see them (PB-023, PB-028).

A sender may be used from any thread of the model.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence

from serving.backends.python.pb_utils import process
from serving.backends.python.pb_utils.errors import TritonError, TritonModelException
from serving.backends.python.pb_utils.tensor import Tensor
from serving.errors import BackendError
from serving.request import InferenceRequest as CoreRequest
from serving.response import InferenceResponse as CoreResponse
from serving.response import OutputTensor, ParameterValue

RESPONSE_COMPLETE_FINAL = 1


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
        self._parameters = {} if parameters is None else checked_parameters(parameters)

    @classmethod
    def _of(cls, core: CoreResponse) -> InferenceResponse:
        """Of another model that this one has called."""
        response = cls.__new__(cls)
        response._output_tensors = [
            Tensor._of(item.name, item.array, item.datatype) for item in core.outputs
        ]
        response._error = None if core.error is None else TritonError._of(core.error)
        response._parameters = core.parameters
        return response

    def output_tensors(self) -> list[Tensor]:
        return self._output_tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        return parameters_json(self._parameters)


def parameters_json(parameters: Mapping[str, ParameterValue]) -> str:
    return json.dumps(parameters, separators=(",", ":"), ensure_ascii=False)


def checked_parameters(
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

    def __del__(self) -> None:
        """Nobody can answer the request any more: it must not wait for ever."""
        if self._is_decoupled and not self.is_closed and self._core.responder is not None:
            core = self._core
            with contextlib.suppress(Exception):  # the interpreter may be at its end
                process.child().later(lambda: _fail_unanswered(core))

    def is_cancelled(self) -> bool:
        process.poll()
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


def _fail_unanswered(core: CoreRequest) -> None:
    with contextlib.suppress(RuntimeError):  # it has been answered after all
        core.respond_error(
            BackendError(
                f"model '{core.model_name}' let go of the response sender without the final flag: "
                "a decoupled model ends every request with TRITONSERVER_RESPONSE_COMPLETE_FINAL"
            )
        )


def core_response(
    response: InferenceResponse, request: CoreRequest, states: frozenset[str]
) -> CoreResponse:
    """The core's form; outputs that nobody asked for are left out, but for the `states`."""
    answer = CoreResponse(request.model_name, request.model_version, request.id)
    if response._error is not None:
        answer.error = response._error._core_error()
        return answer
    wanted = []
    for output in request.requested_outputs:
        wanted.append(output.name)
    for tensor in response._output_tensors:
        name = tensor._name
        if not wanted or name in wanted or name in states:
            array = tensor._array if tensor._datatype.size else tensor._core_array
            answer.outputs.append(OutputTensor(name, tensor._datatype, array.shape, array))
    answer.parameters = response._parameters
    return answer
