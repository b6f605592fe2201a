"""DLPack for tensors in CPU memory, bfloat16 included, which numpy itself does not exchange.

A bfloat16 array travels as uint16 with the type code in its descriptor exchanged; layout after
dlpack.h (DLTensor: data, device type and id, ndim, type code, bits, lanes, ...). Pure functions.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

CPU = 1
_CODE_UINT = 1
_CODE_BFLOAT = 4
_NAME = b"dltensor"

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
    )


class _Exporter:
    """What `np.from_dlpack` wants around a bare capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0)


def to_capsule(array: NDArray[np.generic]) -> object:
    """A DLPack capsule of the array; shares its memory unless it is read-only."""
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype != ml_dtypes.bfloat16:
        exporter: Any = array
        return exporter.__dlpack__()
    capsule = array.view(np.uint16).__dlpack__()
    _Tensor.from_address(_get_pointer(capsule, _NAME)).type_code = _CODE_BFLOAT
    return capsule


def from_exchange(source: object) -> NDArray[np.generic]:
    """An array that shares the memory of a capsule, or of an object with `__dlpack__`.

    Raises: BufferError, TypeError or RuntimeError when it is no tensor that numpy can hold.
    """
    if isinstance(source, np.ndarray):
        return source  # also a read-only one, which numpy would not export
    capsule = source
    if hasattr(source, "__dlpack__"):
        device = source.__dlpack_device__() if hasattr(source, "__dlpack_device__") else (CPU, 0)
        if device[0] != CPU:
            raise BufferError("only tensors in CPU memory are supported")
        capsule = source.__dlpack__()
    if not _is_valid(capsule, _NAME):
        raise TypeError("expected a DLPack capsule that has not been used, or a tensor")
    tensor = _Tensor.from_address(_get_pointer(capsule, _NAME))
    if tensor.device_type != CPU:
        raise BufferError("only tensors in CPU memory are supported")
    if tensor.type_code != _CODE_BFLOAT:
        array: NDArray[np.generic] = np.from_dlpack(_Exporter(capsule))
        return array
    tensor.type_code = _CODE_UINT
    return np.from_dlpack(_Exporter(capsule)).view(ml_dtypes.bfloat16)
