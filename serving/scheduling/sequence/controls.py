"""Control tensors: how a model is told which sequence a row belongs to, and where it stands in it.

Put into `request.inputs` as ordinary inputs before the request is dispatched, so that no backend
needs to know of them. A sequence's rows are one item each: shape [1], or [1, 1] with a batch axis.
Pure; loop thread. Source: spec SCH-016, SCH-060, SCH-061.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serving.config.decode import ModelSpec
from serving.config.scheduling import ControlKind, SequenceControl
from serving.datatypes import DataType
from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest, InputTensor

_Pair = tuple[InputTensor, InputTensor]
"""For false and for true; their arrays are shared by all requests."""


class ControlInputs:
    def __init__(self, spec: ModelSpec) -> None:
        self._model_name = spec.name
        self._shape = (1, 1) if spec.has_batch_axis else (1,)
        pairs: dict[ControlKind, _Pair] = {}
        self._id: SequenceControl | None = None
        for control in spec.sequence_batching.controls:
            if control.kind is ControlKind.CORRID:
                self._id = control
            else:
                pairs[control.kind] = (
                    self._tensor(control, control.false_value),
                    self._tensor(control, control.true_value),
                )
        self._start = pairs.get(ControlKind.START)
        self._end = pairs.get(ControlKind.END)
        self._ready = pairs.get(ControlKind.READY)

    @property
    def takes_text_ids(self) -> bool:
        return self._id is not None and self._id.datatype.is_bytes

    def check_id(self, correlation_id: int | str) -> None:
        """Raises: InvalidArgumentError for text where the model takes a number, or the reverse."""
        if self._id is None:
            return
        wants_text = self._id.datatype.is_bytes
        if isinstance(correlation_id, str) is not wants_text:
            wanted = "a string" if wants_text else "a number"
            raise InvalidArgumentError(
                f"correlation ID {correlation_id!r} of the inference request to model "
                f"'{self._model_name}' must be {wanted}: its control input '{self._id.name}' has "
                f"data type {self._id.datatype.config_name}"
            )

    def apply(self, request: InferenceRequest) -> None:
        """Add what the model wants to know of this request."""
        self._add_flags(request, is_ready=True)
        if self._id is not None:
            self._add_id(request, self._id, request.correlation_id)

    def filler(self, like: InferenceRequest) -> InferenceRequest:
        """A row for a slot that has nothing to do: zeros shaped like the inputs of `like`."""
        request = InferenceRequest(
            like.model_name, like.model_version, requested_outputs=like.requested_outputs
        )
        for tensor in like.inputs.values():
            array = _empty(tensor)
            request.inputs[tensor.name] = InputTensor(
                tensor.name, tensor.datatype, tensor.shape, array
            )
        self._add_flags(request, is_ready=False)
        if self._id is not None:
            # A model must not look at the id of a row that is not ready.
            self._add_id(request, self._id, "" if self._id.datatype.is_bytes else 0)
        return request

    def _add_flags(self, request: InferenceRequest, *, is_ready: bool) -> None:
        if self._start is not None:
            _add(request, self._start[request.sequence_start])
        if self._end is not None:
            _add(request, self._end[request.sequence_end])
        if self._ready is not None:
            _add(request, self._ready[is_ready])

    def _add_id(
        self, request: InferenceRequest, control: SequenceControl, correlation_id: int | str
    ) -> None:
        array = id_array(correlation_id, control.datatype).reshape(self._shape)
        request.inputs[control.name] = InputTensor(
            control.name, control.datatype, self._shape, array
        )

    def _tensor(self, control: SequenceControl, value: float) -> InputTensor:
        array = np.full(self._shape, value, control.datatype.dtype)
        array.flags.writeable = False
        return InputTensor(control.name, control.datatype, self._shape, array)


def _add(request: InferenceRequest, shared: InputTensor) -> None:
    # A tensor of its own: a backend may put another array into it.
    request.inputs[shared.name] = InputTensor(
        shared.name, shared.datatype, shared.shape, shared.array
    )


def id_array(correlation_id: int | str, datatype: DataType) -> NDArray[np.generic]:
    """Shape [1]. A type that is narrower than the id gets its low bits."""
    if isinstance(correlation_id, str):
        array = np.empty(1, np.object_)
        array[0] = correlation_id.encode()
        return array
    raw = (correlation_id & (2**64 - 1)).to_bytes(8, "little")
    return np.frombuffer(raw[: datatype.size], datatype.dtype.newbyteorder("<"))


def _empty(tensor: InputTensor) -> NDArray[np.generic]:
    if tensor.datatype.is_bytes:
        return np.full(tensor.shape, b"", np.object_)
    return np.zeros(tensor.shape, tensor.array.dtype)
