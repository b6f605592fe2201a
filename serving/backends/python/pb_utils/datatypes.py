"""Names and numpy types of Triton's data types, and the encoding of BYTES tensors (PB-026)."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from serving.datatypes import BY_CONFIG_NAME, BY_DTYPE, serialize_bytes

_NO_NUMPY_TYPE = "TYPE_BF16"


def triton_string_to_numpy(triton_type_string: str) -> type[object] | None:
    """The numpy type of a name from config.pbtxt such as TYPE_FP32; None for an unknown name."""
    datatype = BY_CONFIG_NAME.get(triton_type_string)
    if datatype is None or datatype.config_name == _NO_NUMPY_TYPE:
        return None
    return datatype.dtype.type


def numpy_to_triton_type(data_type: object) -> int:
    """The number of the Triton data type (TRITONSERVER_DataType) for a numpy type."""
    dtype = np.dtype(data_type)  # type: ignore[call-overload]
    if dtype.kind in "SU":
        dtype = np.dtype(np.object_)
    found = BY_DTYPE.get(dtype)
    if found is None:
        raise ValueError(f"the numpy type {dtype} has no Triton data type")
    return found.config_number


def triton_to_numpy_type(data_type: int) -> type[object]:
    """The numpy type for the number of a Triton data type."""
    for datatype in BY_CONFIG_NAME.values():
        if datatype.config_number == data_type and datatype.config_name != _NO_NUMPY_TYPE:
            return datatype.dtype.type
    raise ValueError(f"the Triton data type {data_type} has no numpy type")


def serialize_byte_tensor(input_tensor: NDArray[np.generic]) -> NDArray[np.object_] | None:
    """BYTES elements in row-major order, each as length and content, in an array of one element.

    None for an empty tensor. Raises TypeError when the array is neither of objects nor of bytes.
    """
    if input_tensor.size == 0:
        return None
    if input_tensor.dtype != np.object_ and input_tensor.dtype.kind != "S":
        raise TypeError("cannot serialize bytes tensor: invalid datatype")
    flat = np.asarray(serialize_bytes(input_tensor.astype(np.object_)), dtype=np.object_)
    return np.ascontiguousarray(flat)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> NDArray[np.object_]:
    """The flat array of bytes objects that `serialize_byte_tensor` encoded."""
    items = []
    offset = 0
    while offset < len(encoded_tensor):
        (length,) = struct.unpack_from("<I", encoded_tensor, offset)
        offset += 4
        items.append(bytes(encoded_tensor[offset : offset + length]))
        offset += length
    return np.array(items, dtype=np.object_)
