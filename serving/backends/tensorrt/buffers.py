"""The memory of one instance's tensors: where a batch waits on the host, where it is on the device.

Every buffer is as large as the profiles allow and never moves, so that addresses are set once and
CUDA graphs stay true. The instance's thread enters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.tensorrt.cuda_runtime import CudaDriver, DeviceBuffer, HostBuffer, Stream
from serving.backends.tensorrt.engine import GrowingOutput
from serving.backends.tensorrt.profiles import Profile
from serving.backends.tensorrt.signature import EngineTensor

Array = NDArray[Any]
Shape = tuple[int, ...]


def byte_size(shape: Iterable[int], dtype: np.dtype[Any]) -> int:
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return size


def largest_bytes(tensor: EngineTensor, profiles: Iterable[Profile], dtype: np.dtype[Any]) -> int:
    """What an input may need under any of the profiles."""
    return max(byte_size(profile.shapes[tensor.name].high, dtype) for profile in profiles)


class InputMemory:
    """One input: gathered on the host, copied to the device in one piece. A shape tensor stays on
    the host, where TensorRT reads it."""

    def __init__(
        self, cuda: CudaDriver, tensor: EngineTensor, dtype: np.dtype[Any], size: int, pinned: bool
    ) -> None:
        self.name = tensor.name
        self.dtype = dtype
        self.is_shape_tensor = tensor.is_shape_tensor
        self._device: DeviceBuffer | None = None
        self._host = HostBuffer(cuda, size, is_pinned=pinned and not tensor.is_shape_tensor)
        try:
            if not tensor.is_shape_tensor:
                self._device = DeviceBuffer(cuda, size, f"input '{tensor.name}'")
        except BaseException:
            self._host.free()
            raise
        self._size = size
        self._gathered: Array | None = None

    @property
    def address(self) -> int:
        """Where TensorRT finds it."""
        return self._host.address if self._device is None else self._device.address

    def gather(self, arrays: Sequence[Array]) -> Array:
        """Rows of several requests one after the other; in the staging memory if they fit there.

        What does not fit is of a shape that no profile takes, and is refused later.
        """
        first = arrays[0]
        shape = first.shape
        if len(arrays) > 1:
            shape = (sum(array.shape[0] for array in arrays), *shape[1:])
        if byte_size(shape, self.dtype) > self._size:
            return first if len(arrays) == 1 else np.concatenate(arrays)
        staged = self._host.view(shape, self.dtype)
        if len(arrays) == 1:
            staged[...] = first
        else:
            np.concatenate(arrays, out=staged)
        self._gathered = staged
        return staged

    def place(self, array: Array, shape: Shape) -> None:
        """The array into the staging memory as a tensor of `shape`, zeros where it is smaller."""
        if shape == array.shape:
            if array is not self._gathered:
                self._host.view(shape, self.dtype)[...] = array
        else:
            array = array.copy()  # it may lie where it is about to be written
            staged = self._host.view(shape, self.dtype)
            staged[...] = np.zeros((), self.dtype)
            staged[tuple(slice(dim) for dim in array.shape)] = array
        self._gathered = None

    def upload(self, stream: Stream, shape: Shape) -> None:
        if self._device is not None:
            size = byte_size(shape, self.dtype)
            stream.upload(self._device.address, self._host.address, size)

    def free(self) -> None:
        self._gathered = None
        self._host.free()
        if self._device is not None:
            self._device.free()


class OutputMemory:
    """One output: on the device, copied to the host in one piece."""

    def __init__(
        self, cuda: CudaDriver, tensor: EngineTensor, dtype: np.dtype[Any], *, pinned: bool
    ) -> None:
        self.name = tensor.name
        self.dtype = dtype
        self.is_shape_tensor = tensor.is_shape_tensor
        self._cuda = cuda
        self._pinned = pinned and not tensor.is_shape_tensor
        self._host = HostBuffer(cuda, 0, is_pinned=False)
        self._device: DeviceBuffer | None = None
        self.growing: GrowingOutput | None = None

    @property
    def address(self) -> int:
        return self._host.address if self._device is None else self._device.address

    def reserve(self, size: int) -> None:
        """Room for the largest output of a profile."""
        self._reserve_host(size)
        if not self.is_shape_tensor and (self._device is None or self._device.size < size):
            if self._device is not None:
                self._device.free()
            self._device = DeviceBuffer(self._cuda, size, f"output '{self.name}'")

    def _reserve_host(self, size: int) -> None:
        if self._host.size < size:
            self._host.free()
            self._host = HostBuffer(self._cuda, size, is_pinned=self._pinned)

    def download(self, stream: Stream, shape: Shape) -> None:
        if self.is_shape_tensor:
            return
        size = byte_size(shape, self.dtype)
        self._reserve_host(size)
        source = self.address if self.growing is None else self.growing.address
        stream.download(self._host.address, source, size)

    def take(self, shape: Shape) -> Array:
        """A copy: the memory is written again by the next batch."""
        return self._host.view(shape, self.dtype).copy()

    def free(self) -> None:
        self._host.free()
        if self._device is not None:
            self._device.free()
        if self.growing is not None:
            self.growing.free()
