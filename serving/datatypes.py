"""Triton's data types: KServe name, config enum name, NumPy dtype, size, and the BYTES wire form.

Source: spec "data types" (KServe v2 tensor data types; ModelConfig.DataType).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from serving.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class DataType:
    name: str
    """Name in the protocol, e.g. FP32 or BYTES."""
    config_name: str
    """Name in config.pbtxt, e.g. TYPE_FP32 or TYPE_STRING."""
    config_number: int
    size: int
    """Bytes of one element; 0 for BYTES, whose elements vary."""
    dtype: np.dtype[np.generic]
    json_allowed: bool = True
    is_bytes: bool = False


def _fixed(name: str, number: int, dtype: object, *, json_allowed: bool = True) -> DataType:
    numpy_dtype = np.dtype(dtype)  # type: ignore[call-overload]
    return DataType(name, f"TYPE_{name}", number, numpy_dtype.itemsize, numpy_dtype, json_allowed)


_ALL = (
    _fixed("BOOL", 1, np.bool_),
    _fixed("UINT8", 2, np.uint8),
    _fixed("UINT16", 3, np.uint16),
    _fixed("UINT32", 4, np.uint32),
    _fixed("UINT64", 5, np.uint64),
    _fixed("INT8", 6, np.int8),
    _fixed("INT16", 7, np.int16),
    _fixed("INT32", 8, np.int32),
    _fixed("INT64", 9, np.int64),
    _fixed("FP16", 10, np.float16, json_allowed=False),
    _fixed("FP32", 11, np.float32),
    _fixed("FP64", 12, np.float64),
    DataType("BYTES", "TYPE_STRING", 13, 0, np.dtype(np.object_), is_bytes=True),
    _fixed("BF16", 14, ml_dtypes.bfloat16, json_allowed=False),
)

BY_NAME: dict[str, DataType] = {item.name: item for item in _ALL}
BY_CONFIG_NAME: dict[str, DataType] = {item.config_name: item for item in _ALL}
BY_CONFIG_NUMBER: dict[int, DataType] = {item.config_number: item for item in _ALL}
BY_DTYPE: dict[np.dtype[np.generic], DataType] = {item.dtype: item for item in _ALL}

_LENGTH = struct.Struct("<I")
_COPY_BELOW = 64 * 1024
"""Smaller tensors are cheaper to copy into one write than to send as a separate view."""


def element_count(shape: tuple[int, ...]) -> int:
    """Product of `shape` in unbounded integers (a product of int64 dims may overflow)."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def serialize_bytes(array: NDArray[np.object_]) -> bytes:
    """BYTES elements in row-major order, each as 4-byte little-endian length and content."""
    parts: list[bytes] = []
    for item in array.ravel():
        value = item if isinstance(item, bytes) else str(item).encode()
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)
    return b"".join(parts)


def bytes_from_array(array: NDArray[np.generic], datatype: DataType) -> bytes | memoryview:
    """The wire form of a tensor; a large one is a view of the array."""
    if datatype.is_bytes:
        return serialize_bytes(array)  # type: ignore[arg-type]
    if array.nbytes < _COPY_BELOW:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def deserialize_bytes(raw: memoryview, count: int, tensor: str) -> NDArray[np.object_]:
    """Parse exactly `count` BYTES elements out of `raw` into a flat object array.

    Raises: InvalidArgumentError when a length prefix is incomplete, or there are too few or too
    many elements.
    """
    if count * 4 > len(raw):
        raise InvalidArgumentError(
            f"unexpected end of data for BYTES tensor {tensor}: expected {count} string elements, "
            f"but {len(raw)} bytes hold at most {len(raw) // 4}"
        )
    out = np.empty(count, dtype=np.object_)
    offset = 0
    end = len(raw)
    for index in range(count):
        if offset + 4 > end:
            raise InvalidArgumentError(
                f"incomplete string length indicator for BYTES tensor {tensor}: element {index} "
                f"of {count} needs 4 bytes, {end - offset} left"
            )
        (length,) = _LENGTH.unpack_from(raw, offset)
        offset += 4
        if offset + length > end:
            raise InvalidArgumentError(
                f"incomplete string data for BYTES tensor {tensor}: element {index} of {count} "
                f"needs {length} bytes, {end - offset} left"
            )
        out[index] = bytes(raw[offset : offset + length])
        offset += length
    if offset != end:
        raise _too_many_elements(raw, offset, count, tensor)
    return out


def _too_many_elements(
    raw: memoryview, offset: int, count: int, tensor: str
) -> InvalidArgumentError:
    got = count
    while offset + 4 <= len(raw):
        offset += 4 + int(_LENGTH.unpack_from(raw, offset)[0])
        got += 1
    if offset < len(raw):
        return InvalidArgumentError(
            f"incomplete string length indicator for BYTES tensor {tensor}: a length takes 4 "
            f"bytes, {len(raw) - offset} bytes are left after {got} elements"
        )
    return InvalidArgumentError(
        f"unexpected number of string elements for BYTES tensor {tensor}: expected {count}, got "
        f"{got}"
    )
