"""Between NumPy arrays and what ONNX Runtime takes and gives: text, BF16, FP8, outputs on a GPU.

NumPy has no BF16 and no FP8 that the runtime knows, so these cross as OrtValues made of their bits
(spec ORT-13, ORT-17). An instance's thread enters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from serving.backends.model_signature import ModelTensor
from serving.backends.onnxruntime.signature import RAW_TYPES

Array = NDArray[np.generic]
_BF16 = RAW_TYPES["tensor(bfloat16)"]


def raw_types(tensors: Sequence[ModelTensor]) -> dict[str, int]:
    """Name -> element type of ONNX, of tensors that NumPy cannot hold."""
    return {item.name: RAW_TYPES[item.type_text] for item in tensors if item.type_text in RAW_TYPES}


def value_of(ort: Any, array: Array, onnx_type: int | None) -> Any:
    """An OrtValue that shares the array's memory."""
    if onnx_type is None:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(np.uint16 if onnx_type == _BF16 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx_type)


def array_of(value: Any) -> Array:
    """A copy of an OrtValue in the memory of the host; FP8 as its bits."""
    kind = value.element_type()
    if kind not in RAW_TYPES.values():
        array: Array = value.numpy()
        return array
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == _BF16 else np.uint8)
    shape = tuple(value.shape())
    result: Array = np.empty(shape, dtype)
    if result.size:
        ctypes.memmove(result.ctypes.data, value.data_ptr(), result.nbytes)
    return result


class BoundRun:
    """Runs with the outputs left on a device until all are there, and then copied at once.

    Without it the runtime makes each output wait for its own copy.
    """

    def __init__(
        self, ort: Any, session: Any, place: tuple[str, int], host_outputs: frozenset[str]
    ) -> None:
        """`place`: device type and number, as ("cuda", 0).

        `host_outputs`: those that must be made in the memory of the host: text, BF16, FP8."""
        self._ort = ort
        self._session = session
        self._place = place
        self._host_outputs = host_outputs

    def __call__(
        self,
        feed: Mapping[str, Array],
        types: Mapping[str, int],
        output_names: Sequence[str],
        options: Any,
    ) -> list[Array]:
        binding = self._session.io_binding()
        kept = []  # until the run is over
        for name, array in feed.items():
            if name in types:
                kept.append(value_of(self._ort, array, types[name]))
                binding.bind_ortvalue_input(name, kept[-1])
            else:
                binding.bind_cpu_input(name, array)
        for name in output_names:
            if name in self._host_outputs:
                binding.bind_output(name)
            else:
                binding.bind_output(name, *self._place)
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        return [array_of(value) for value in binding.get_outputs()]


def decoded(array: Array) -> Array:
    """Texts of BYTES. Raises: UnicodeDecodeError."""
    flat = np.empty(array.size, dtype=np.object_)
    flat[:] = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return flat.reshape(array.shape)


def encoded(array: Array) -> Array:
    """BYTES of texts."""
    texts = [str(item).encode() for item in array.ravel()]
    flat = np.empty(len(texts), dtype=np.object_)
    flat[:] = texts
    return flat.reshape(array.shape)
