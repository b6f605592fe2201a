"""`pb_utils.Tensor`: a named array in CPU memory (PB-020, PB-021)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from serving.backends.python.pb_utils import dlpack
from serving.backends.python.pb_utils.errors import TritonModelException
from serving.datatypes import BY_DTYPE, BY_NAME, DataType

_BYTES = BY_NAME["BYTES"]
_BFLOAT16 = BY_DTYPE[np.dtype(ml_dtypes.bfloat16)]


def _datatype_of(name: str, dtype: np.dtype[np.generic]) -> DataType:
    """Of a type that is no data type as it is."""
    if dtype.kind in "SU":
        return _BYTES
    raise TritonModelException(f"tensor '{name}': the numpy type {dtype} has no Triton data type")


class Tensor:
    __slots__ = ("_array", "_datatype", "_name")

    def __init__(self, name: str, numpy_array: NDArray[np.generic]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a tensor's name must be str, not {type(name).__name__}")
        if not name:
            raise TritonModelException("a tensor's name must not be empty")
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(
                f"tensor '{name}' must be made of a numpy array, not of "
                f"{type(numpy_array).__name__}"
            )
        if not numpy_array.dtype.isnative:
            numpy_array = numpy_array.astype(numpy_array.dtype.newbyteorder("="))
        self._name = name
        self._array = numpy_array
        self._datatype = BY_DTYPE.get(numpy_array.dtype) or _datatype_of(name, numpy_array.dtype)

    @classmethod
    def _of(cls, name: str, array: NDArray[np.generic], datatype: DataType) -> Tensor:
        """One of the core's."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._array = array
        tensor._datatype = datatype
        return tensor

    def __repr__(self) -> str:
        return f"<Tensor {self._name} {self._datatype.name} {list(self._array.shape)}>"

    def name(self) -> str:
        return self._name

    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def triton_dtype(self) -> int:
        return self._datatype.config_number

    def is_cpu(self) -> bool:
        return True

    def as_numpy(self) -> NDArray[np.generic]:
        if self._datatype is _BFLOAT16:
            raise TritonModelException(
                f"tensor '{self._name}' has the data type BF16, which numpy has no type for: use "
                "to_dlpack() instead, for example torch.from_dlpack(tensor.to_dlpack())"
            )
        return self._array

    def to_dlpack(self) -> object:
        if self._datatype is _BYTES:
            raise TritonModelException(
                f"tensor '{self._name}' has the data type BYTES, which DLPack does not know"
            )
        return dlpack.to_capsule(self._array)

    def __dlpack__(self, *, stream: object = None, **_: object) -> object:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0)

    @staticmethod
    def from_dlpack(name: str, tensor: object) -> Tensor:
        """A tensor that shares the memory of `tensor` (a capsule, or an object with __dlpack__)."""
        try:
            array = dlpack.from_exchange(tensor)
        except (BufferError, TypeError, RuntimeError) as error:
            raise TritonModelException(f"tensor '{name}' from DLPack: {error}") from error
        if not array.flags.c_contiguous:
            raise TritonModelException(
                f"tensor '{name}' from DLPack is not contiguous: call contiguous() on it first"
            )
        return Tensor(name, array)

    @property
    def _core_datatype(self) -> DataType:
        return self._datatype

    @property
    def _core_array(self) -> NDArray[np.generic]:
        """Of objects where the data type is BYTES."""
        if self._datatype is _BYTES and self._array.dtype.kind in "SU":
            return self._array.astype(np.object_)
        return self._array
