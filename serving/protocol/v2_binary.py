"""Tensors as raw bytes: the binary tensor extension, without copies.

An array that comes out of here is a view of the received body wherever its alignment allows; BYTES
tensors become object arrays. Pure; any thread. Source: spec HTTP-037 to HTTP-039, SCH-013 to
SCH-015.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from serving.config.decode import ModelSpec
from serving.datatypes import DataType, deserialize_bytes, element_count
from serving.errors import InvalidArgumentError
from serving.protocol.parameters import INT64_MAX
from serving.request import InputTensor

MAX_DIMENSIONS = 64
"""Of numpy's arrays."""


def check_shape(shape: list[int], tensor: str) -> tuple[int, ...]:
    """Refuse negative or too many dimensions, and counts that do not fit an int64 (HTTP-033)."""
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidArgumentError(
            f"Unable to parse 'shape' of {tensor}: it has {len(shape)} dimensions, at most "
            f"{MAX_DIMENSIONS} are supported"
        )
    for dim in shape:
        if dim < 0:
            raise InvalidArgumentError(
                f"Unable to parse 'shape' of {tensor}: {shape} has the negative dimension {dim}"
            )
        if dim > INT64_MAX:
            raise InvalidArgumentError(
                f"Unable to parse 'shape' of {tensor}: the dimension {dim} does not fit an int64"
            )
    if math.prod(shape) > INT64_MAX:
        raise InvalidArgumentError(
            f"'shape' of {tensor} is too large: the element count of {shape} does not fit an int64"
        )
    return tuple(shape)


def array_from_bytes(
    raw: memoryview | bytes | bytearray, datatype: DataType, shape: tuple[int, ...], tensor: str
) -> NDArray[np.generic]:
    """View `raw` as the tensor. Raises InvalidArgumentError on a size that does not fit."""
    count = element_count(shape)
    if datatype.is_bytes:
        flat: NDArray[np.generic] = deserialize_bytes(memoryview(raw), count, tensor)
    else:
        if count * datatype.size != len(raw):
            raise InvalidArgumentError(
                f"input byte size mismatch for {tensor}: shape {list(shape)} of {datatype.name} "
                f"needs {count * datatype.size} bytes, got {len(raw)}"
            )
        flat = np.frombuffer(raw, dtype=datatype.dtype) if count else np.empty(0, datatype.dtype)
        if not flat.flags.aligned:
            flat = flat.copy()
    if len(shape) == 1:
        return flat
    try:
        return flat.reshape(shape)
    except ValueError as error:
        raise InvalidArgumentError(f"{tensor} has an impossible shape: {error}") from None


def raw_input(body: memoryview, spec: ModelSpec) -> InputTensor:
    """A body without any JSON: the one input of the model, its open dimension deduced."""
    if len(spec.inputs) != 1:
        raise InvalidArgumentError(
            f"a raw request needs a model with exactly 1 input; model '{spec.name}' has "
            f"{len(spec.inputs)}: {', '.join(spec.inputs)}"
        )
    (tensor,) = spec.inputs.values()
    where = f"raw_input '{tensor.name}' of model '{spec.name}'"
    batch = (1,) if spec.has_batch_axis else ()
    datatype = tensor.datatype
    if datatype.is_bytes:
        if element_count(tensor.dims) != 1 or -1 in tensor.dims:
            raise InvalidArgumentError(
                f"{where}: a raw request carries one BYTES element, so the model's input must "
                f"have shape [1], not {list(tensor.dims)}"
            )
        array = np.empty((*batch, *tensor.dims), dtype=np.object_)
        array.reshape(-1)[0] = bytes(body)
        return InputTensor(tensor.name, datatype, array.shape, array)
    shape = batch + _deduce(tensor.dims, datatype.size, len(body), where)
    return InputTensor(tensor.name, datatype, shape, array_from_bytes(body, datatype, shape, where))


def _deduce(dims: tuple[int, ...], item_size: int, byte_size: int, where: str) -> tuple[int, ...]:
    open_axes = [axis for axis, dim in enumerate(dims) if dim == -1]
    if not open_axes:
        return dims
    if len(open_axes) > 1:
        raise InvalidArgumentError(
            f"{where}: the shape of a raw request can be deduced for one open dimension only; the "
            f"input's dims are {list(dims)}"
        )
    step = item_size * element_count(tuple(dim for dim in dims if dim != -1))
    if step == 0 or byte_size % step:
        raise InvalidArgumentError(
            f"input byte size mismatch for {where}: {byte_size} bytes are no multiple of {step}, "
            f"which one step of dims {list(dims)} needs"
        )
    return tuple(byte_size // step if dim == -1 else dim for dim in dims)
