"""What a request must satisfy before any scheduler sees it, and the shape changes at the border.

`RequestChecks` is compiled once from a ModelSpec; `check` normalises a request in place (batch
size, reshape of inputs), `restore_outputs` undoes the reshape of outputs. Every refusal is the
caller's mistake, names the model, what was sent and what is expected. Loop thread; no state after
the constructor. Behaviour after spec SCH-001..018.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.config.decode import ModelSpec, TensorSpec
from serving.datatypes import DataType, element_count
from serving.errors import InternalError, InvalidArgumentError
from serving.request import InferenceRequest, InputTensor
from serving.response import OutputTensor

Shape = tuple[int, ...]
_MOST_NAMES = 32
_RESERVED_PREFIX = "triton_"
_RESERVED_ALLOWED = frozenset({"triton_enable_empty_final_response"})


@dataclass(frozen=True, slots=True)
class _Expected:
    spec: TensorSpec
    datatype: DataType
    dtype: np.dtype[Any]
    dims: Shape
    fixed: Shape | None
    """All dims without the batch axis, when none is -1."""
    batch_axes: int
    """1 where the first dimension is the batch size, else 0; shape tensors have none."""
    is_reshaped: bool


class RequestChecks:
    def __init__(self, spec: ModelSpec) -> None:
        self._name = spec.name
        self._max_batch_size = spec.max_batch_size
        self._has_batch_axis = spec.has_batch_axis
        self._inputs = {
            name: _Expected(
                tensor,
                tensor.datatype,
                tensor.datatype.dtype,
                tensor.dims,
                tensor.dims if all(dim >= 0 for dim in tensor.dims) else None,
                int(spec.has_batch_axis and not tensor.is_shape_tensor),
                tensor.reshape is not None,
            )
            for name, tensor in spec.inputs.items()
        }
        self._reshapes_inputs = any(item.is_reshaped for item in self._inputs.values())
        self._outputs = spec.outputs
        self._all_names = set(spec.inputs)
        self._required = [name for name, item in spec.inputs.items() if not item.is_optional]
        self._reshaped_outputs = {
            name: item for name, item in spec.outputs.items() if item.reshape is not None
        }
        self.has_output_reshape = bool(self._reshaped_outputs)

    def check(self, request: InferenceRequest) -> None:
        """Raises: InvalidArgumentError."""
        if request.checked_by is self:
            return
        if request.requested_outputs:
            self._check_requested_outputs(request)
        if request.parameters:
            self._check_parameters(request)
        if request.inputs.keys() != self._all_names:
            self._check_input_names(request.inputs)
        batch_size = -1
        for name, tensor in request.inputs.items():
            expected = self._inputs[name]
            if tensor.datatype is not expected.datatype:
                raise InvalidArgumentError(
                    f"inference input '{name}' data-type is '{tensor.datatype.name}', but model "
                    f"'{self._name}' expects '{expected.datatype.name}'"
                )
            self._check_shape(name, tensor, expected)
            if expected.batch_axes:
                if batch_size < 0:
                    batch_size = tensor.shape[0]
                elif batch_size != tensor.shape[0]:
                    raise InvalidArgumentError(
                        self._unequal_batches(request.inputs, name, batch_size)
                    )
            if expected.is_reshaped:
                self._reshape_input(tensor, expected)
        if batch_size == 0:
            raise InvalidArgumentError(
                f"inference request batch-size must be at least 1 for '{self._name}', got 0: the "
                "first dimension of every input is the batch size"
            )
        request.batch_size = batch_size if batch_size >= 0 else 1
        if batch_size > self._max_batch_size:
            raise InvalidArgumentError(
                f"inference request batch-size must be <= {self._max_batch_size} for "
                f"'{self._name}', got {batch_size}: split the request, or raise max_batch_size"
            )
        if not self._reshapes_inputs:
            request.checked_by = self

    def _unequal_batches(self, inputs: dict[str, InputTensor], name: str, batch_size: int) -> str:
        first = next(item for item in inputs if self._inputs[item].batch_axes)
        return (
            f"input '{name}' batch size does not match other inputs for '{self._name}': got "
            f"{inputs[name].shape[0]}, but {batch_size} for '{first}'"
        )

    def restore_outputs(self, outputs: list[OutputTensor]) -> list[OutputTensor]:
        """Give outputs with a `reshape` the shape that the config promises callers."""
        return [
            self._restore(output, self._reshaped_outputs[output.name])
            if output.name in self._reshaped_outputs
            else output
            for output in outputs
        ]

    def _check_requested_outputs(self, request: InferenceRequest) -> None:
        seen: set[str] = set()
        for output in request.requested_outputs:
            if output.name not in self._outputs:
                raise InvalidArgumentError(
                    f"unexpected inference output '{output.name}' for model '{self._name}': it "
                    f"has {_names(self._outputs)}"
                )
            if output.name in seen:
                raise InvalidArgumentError(
                    f"output '{output.name}' already exists in request for model '{self._name}'"
                )
            seen.add(output.name)

    def _check_parameters(self, request: InferenceRequest) -> None:
        for name in request.parameters:
            if name.startswith(_RESERVED_PREFIX) and name not in _RESERVED_ALLOWED:
                raise InvalidArgumentError(
                    f"parameter '{name}' of the request to model '{self._name}' starts with "
                    f"'{_RESERVED_PREFIX}', which is reserved: rename it"
                )

    def _check_input_names(self, inputs: dict[str, InputTensor]) -> None:
        got, most, least = len(inputs), len(self._inputs), len(self._required)
        if not least <= got <= most:
            raise InvalidArgumentError(self._wrong_input_count(inputs))
        for name in inputs:
            if name not in self._inputs:
                raise InvalidArgumentError(
                    f"unexpected inference input '{name}' for model '{self._name}': it takes "
                    f"{_names(self._inputs)}"
                )
        if least != most:
            for name in self._required:
                if name not in inputs:
                    raise InvalidArgumentError(
                        f"required input '{name}' is missing for model '{self._name}'. Got "
                        f"input(s) {_names(inputs)}"
                    )

    def _wrong_input_count(self, inputs: dict[str, InputTensor]) -> str:
        got, most, least = len(inputs), len(self._inputs), len(self._required)
        missing = [name for name in self._required if name not in inputs]
        tail = f"Got input(s) {_names(inputs)}, but missing required input(s) {_names(missing)}."
        if least == most:
            return f"expected {most} inputs but got {got} inputs for model '{self._name}'. {tail}"
        return (
            f"expected number of inputs between {least} and {most} but got {got} inputs for "
            f"model '{self._name}'. {tail}"
        )

    def _check_shape(self, name: str, tensor: InputTensor, expected: _Expected) -> None:
        shape = tensor.shape
        dims = shape
        if expected.batch_axes:
            if not shape:
                raise InvalidArgumentError(
                    f"input '{name}' has no shape but model requires batch dimension for "
                    f"'{self._name}'"
                )
            dims = shape[1:]
        if dims != expected.fixed and not _fits(dims, expected.dims):
            raise InvalidArgumentError(self._unexpected_shape(name, shape, expected))
        if shape and min(shape) < 0:
            raise InvalidArgumentError(
                f"All input dimensions should be specified for input '{name}' for model "
                f"'{self._name}', got {_text(shape)}"
            )
        if tensor.array.shape != shape or tensor.array.dtype != expected.dtype:
            raise InvalidArgumentError(self._size_mismatch(name, tensor, expected.datatype))

    def _unexpected_shape(self, name: str, shape: Shape, expected: _Expected) -> str:
        if shape and min(shape) < 0:
            return (
                f"All input dimensions should be specified for input '{name}' for model "
                f"'{self._name}', got {_text(shape)}"
            )
        wanted = (-1,) * expected.batch_axes + expected.dims
        note = ""
        if expected.batch_axes:
            note = (
                f" NOTE: max_batch_size is {self._max_batch_size}, so the first dimension of "
                "every shape is the batch and the dims of the config follow it."
            )
        return (
            f"unexpected shape for input '{name}' for model '{self._name}'. Expected "
            f"{_text(wanted)}, got {_text(shape)}.{note}"
        )

    def _size_mismatch(self, name: str, tensor: InputTensor, datatype: DataType) -> str:
        count = element_count(tensor.shape)
        if datatype.is_bytes:
            return (
                f"unexpected number of string elements {tensor.array.size} for inference input "
                f"'{name}' for model '{self._name}', expecting {count}"
            )
        return (
            f"input byte size mismatch for input '{name}' for model '{self._name}'. Expected "
            f"{count * datatype.size}, got {tensor.array.nbytes}"
        )

    def _reshape_input(self, tensor: InputTensor, expected: _Expected) -> None:
        spec, lead = expected.spec, expected.batch_axes
        assert spec.reshape is not None
        shape = tensor.shape[:lead] + _carry_over(tensor.shape[lead:], spec.dims, spec.reshape)
        tensor.array = tensor.array.reshape(shape)
        tensor.shape = shape

    def _restore(self, output: OutputTensor, spec: TensorSpec) -> OutputTensor:
        assert spec.reshape is not None
        lead = int(self._has_batch_axis)
        inner = output.shape[lead:]
        if not _fits(inner, spec.reshape):
            raise InternalError(
                f"output '{spec.name}' of model '{self._name}' has shape {_text(output.shape)}, "
                f"but its reshape in the config is {_text(spec.reshape)}"
            )
        shape = output.shape[:lead] + _carry_over(inner, spec.reshape, spec.dims)
        return OutputTensor(output.name, output.datatype, shape, output.array.reshape(shape))


def _fits(shape: Shape, dims: Shape) -> bool:
    return len(shape) == len(dims) and all(
        want in (-1, have) for have, want in zip(shape, dims, strict=True)
    )


def _carry_over(shape: Shape, dims: Shape, target: Shape) -> Shape:
    """`target` with each -1 replaced, in order, by what `shape` has where `dims` has -1."""
    values = iter([have for have, want in zip(shape, dims, strict=True) if want == -1])
    return tuple(next(values) if dim == -1 else dim for dim in target)


def _names(names: Collection[str]) -> str:
    told = [f"'{name}'" for name in itertools.islice(names, _MOST_NAMES)]
    if len(names) > _MOST_NAMES:
        told.append(f"and {len(names) - _MOST_NAMES} more")
    return "[" + ", ".join(told) + "]"


def _text(shape: Shape) -> str:
    return "[" + ",".join(str(dim) for dim in shape) + "]"
