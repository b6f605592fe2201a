"""Requests as C structures, and C structures as responses. Pure but for reading the memory of a
library; the threads of instances enter, and those of libraries.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.native import abi
from serving.config.decode import ModelSpec
from serving.datatypes import deserialize_bytes, element_count, serialize_bytes
from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest, InputTensor
from serving.response import ParameterValue

_MAX_RANK = 64
_INT64 = range(-(2**63), 2**63)


class RequestMemory:
    """One request as the header has it, and all that its pointers lead to."""

    def __init__(self, request: InferenceRequest, spec: ModelSpec) -> None:
        self._kept: list[object] = []
        inputs = (abi.Tensor * len(request.inputs))(*map(self._tensor, request.inputs.values()))
        names = request.output_names
        if names:  # states are wanted, whatever else is
            names += [state.output_name for state in spec.states]
        outputs = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        given = request.parameters
        parameters = (abi.Parameter * len(given))(*(_parameter(*item) for item in given.items()))
        self._kept += [inputs, outputs, parameters]
        is_text = isinstance(request.correlation_id, str)
        flags = abi.SEQUENCE_START * request.sequence_start
        flags |= abi.SEQUENCE_END * request.sequence_end
        self.structure = abi.Request(
            id=_text(request.id),
            correlation_id=0 if is_text else request.correlation_id,
            correlation_id_text=_text(str(request.correlation_id)) if is_text else b"",
            flags=flags,
            priority=request.priority,
            timeout_us=request.timeout_us,
            batch_size=request.batch_size,
            input_count=len(inputs),
            inputs=ctypes.addressof(inputs),
            output_count=len(outputs),
            outputs=ctypes.addressof(outputs),
            parameter_count=len(parameters),
            parameters=ctypes.addressof(parameters),
        )

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structure)

    def _tensor(self, tensor: InputTensor) -> abi.Tensor:
        array: NDArray[Any] = tensor.array
        if tensor.datatype.is_bytes:
            array = np.frombuffer(serialize_bytes(array), np.uint8)
        elif not (array.flags.c_contiguous and array.flags.aligned):
            array = np.array(array, order="C")
        shape = (ctypes.c_int64 * len(tensor.shape))(*tensor.shape)
        self._kept += [array, shape]
        return abi.Tensor(
            name=tensor.name.encode(),
            datatype=tensor.datatype.config_number,
            rank=len(tensor.shape),
            shape=ctypes.addressof(shape),
            data=array.ctypes.data,
            byte_size=array.nbytes,
        )


def _parameter(name: str, value: ParameterValue) -> abi.Parameter:
    made = abi.Parameter(name=_text(name), string_value=b"")
    if isinstance(value, bool):
        made.type, made.bool_value = abi.BOOL, value
    elif isinstance(value, int) and value in _INT64:
        made.type, made.int_value = abi.INT, value
    elif isinstance(value, float):
        made.type, made.double_value = abi.DOUBLE, value
    else:
        made.type, made.string_value = abi.STRING, _text(str(value))
    return made


def _text(text: str) -> bytes:
    """C strings end at their first zero byte."""
    return text.encode("utf-8", "backslashreplace").replace(b"\0", b"")


def outputs_of(response: abi.Response, spec: ModelSpec) -> dict[str, NDArray[np.generic]]:
    """Copies of the tensors. Raises: InvalidArgumentError for one that cannot be."""
    if response.output_count and not response.outputs:
        raise InvalidArgumentError("the response has outputs and no tensors")
    tensors = (
        (abi.Tensor * response.output_count).from_address(response.outputs or 0)
        if (response.output_count)
        else ()
    )
    return dict(_output(item, spec) for item in tensors)


def _output(tensor: abi.Tensor, spec: ModelSpec) -> tuple[str, NDArray[np.generic]]:
    name = (tensor.name or b"").decode("utf-8", "replace")
    declared = spec.backend_outputs.get(name)
    if declared is None:
        raise InvalidArgumentError(
            f"output '{name}' is none of the config's, which are {', '.join(spec.backend_outputs)}"
        )
    datatype = declared.datatype
    if tensor.datatype != datatype.config_number:
        raise InvalidArgumentError(
            f"output '{name}' has data type {tensor.datatype}, the config says "
            f"{datatype.config_name} ({datatype.config_number})"
        )
    if tensor.rank > _MAX_RANK or (tensor.rank and not tensor.shape):
        raise InvalidArgumentError(f"output '{name}' has no shape, or more than {_MAX_RANK} sizes")
    shape: tuple[int, ...] = ()
    if tensor.rank:
        shape = tuple((ctypes.c_int64 * tensor.rank).from_address(tensor.shape))
    if any(size < 0 for size in shape):
        raise InvalidArgumentError(f"output '{name}' has the shape {list(shape)}")
    if tensor.byte_size and not tensor.data:
        raise InvalidArgumentError(f"output '{name}' has {tensor.byte_size} bytes at no address")
    count, size = element_count(shape), tensor.byte_size
    if not datatype.is_bytes and size != count * datatype.size:
        raise InvalidArgumentError(
            f"output '{name}' has {size} bytes, its shape {list(shape)} of {datatype.name} takes "
            f"{count * datatype.size}"
        )
    content = np.empty(size, np.uint8)
    ctypes.memmove(content.ctypes.data, tensor.data, size)  # string_at counts to 2 GiB only
    if datatype.is_bytes:
        return name, deserialize_bytes(content.data, count, name).reshape(shape)
    return name, content.view(datatype.dtype).reshape(shape)


def parameters_of(response: abi.Response) -> Mapping[str, ParameterValue]:
    """Raises: InvalidArgumentError for a type that is none."""
    found: dict[str, ParameterValue] = {}
    if not response.parameter_count or not response.parameters:
        return found
    for item in (abi.Parameter * response.parameter_count).from_address(response.parameters):
        name = (item.name or b"").decode("utf-8", "replace")
        if item.type == abi.STRING:
            found[name] = (item.string_value or b"").decode("utf-8", "replace")
        elif item.type == abi.INT:
            found[name] = int(item.int_value)
        elif item.type == abi.BOOL:
            found[name] = bool(item.bool_value)
        elif item.type == abi.DOUBLE and math.isfinite(item.double_value):
            found[name] = float(item.double_value)
        else:
            raise InvalidArgumentError(
                f"response parameter '{name}' has the unknown type {item.type}, or is no number"
            )
    return found
