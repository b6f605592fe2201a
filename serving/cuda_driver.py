"""What client shared memory needs of the CUDA driver: memory of other processes, by handle.

Through ctypes on the driver's own library, which is there wherever a GPU can be used: no runtime,
toolkit or package is needed, and nothing is loaded before a client registers a region. Handles are
those of cudaIpcGetMemHandle and cuIpcGetMemHandle, which are the same. Any thread may call; each
call makes the primary context of the device current, and gives its thread the former one back.
Copies go through a stream of their own, so that they do not wait for models that compute.
Source: CUDA driver API, memory management; spec HTTP-017, GRPC-014.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.cuda_library import LIBRARY, CudaLibrary

HANDLE_SIZE = 64
_LAZY_PEER_ACCESS = 1
_NON_BLOCKING = 1


class _Handle(ctypes.Structure):
    """CUipcMemHandle: passed by value."""

    _fields_ = [("reserved", ctypes.c_ubyte * HANDLE_SIZE)]


_PROTOTYPES: dict[str, list[Any]] = {
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuIpcOpenMemHandle_v2": [POINTER(c_uint64), _Handle, c_uint],
    "cuIpcCloseMemHandle": [c_uint64],
    "cuMemGetAddressRange_v2": [POINTER(c_uint64), POINTER(c_size_t), c_uint64],
    "cuStreamCreate": [POINTER(c_void_p), c_uint],
    "cuStreamSynchronize": [c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
}


@dataclass(frozen=True, slots=True)
class _Device:
    context: c_void_p
    stream: c_void_p


class CudaDriver:
    """The loaded library and a context for each device in use, kept for the life of the process."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Raises NoCudaError."""
        cuda = CudaLibrary(_PROTOTYPES, library)
        self._call = cuda.call
        self.device_count = cuda.device_count
        self._lock = threading.Lock()
        self._devices: dict[int, _Device] = {}

    def open(self, device: int, handle: bytes) -> int:
        """The address at which the memory is to be found here; `close` it once for each `open`.

        Raises: CudaError, also for a handle of this very process, which CUDA does not open.
        """
        address = c_uint64()
        shared = _Handle.from_buffer_copy(handle)
        with self._current(device):
            self._call("cuIpcOpenMemHandle_v2", byref(address), shared, _LAZY_PEER_ACCESS)
        return address.value

    def size_at(self, device: int, address: int) -> int:
        """Bytes from the address to the end of its allocation. Raises CudaError."""
        base, size = c_uint64(), c_size_t()
        with self._current(device):
            self._call("cuMemGetAddressRange_v2", byref(base), byref(size), address)
        return base.value + size.value - address

    def read(self, device: int, address: int, into: bytearray) -> None:
        """Fills `into`, and is done when it returns. Raises CudaError."""
        if into:
            target = np.frombuffer(into, np.uint8)
            with self._current(device) as stream:
                size = target.nbytes
                self._call("cuMemcpyDtoHAsync_v2", target.ctypes.data, address, size, stream)
                self._call("cuStreamSynchronize", stream)

    def write(self, device: int, address: int, data: memoryview) -> None:
        """Done when it returns. Raises CudaError."""
        if data.nbytes:
            source = np.frombuffer(data, np.uint8)
            with self._current(device) as stream:
                size = source.nbytes
                self._call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, size, stream)
                self._call("cuStreamSynchronize", stream)

    def close(self, device: int, address: int) -> None:
        """Raises CudaError."""
        with self._current(device):
            self._call("cuIpcCloseMemHandle", address)

    @contextlib.contextmanager
    def _current(self, device: int) -> Iterator[c_void_p]:
        """The device's context is the thread's; gives the stream for copies."""
        there = self._device(device)
        self._call("cuCtxPushCurrent_v2", there.context)
        try:
            yield there.stream
        finally:
            self._call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def _device(self, device: int) -> _Device:
        with self._lock:
            there = self._devices.get(device)
            if there is None:
                there = self._devices[device] = self._made(device)
        return there

    def _made(self, device: int) -> _Device:
        number, context, stream = c_int(), c_void_p(), c_void_p()
        self._call("cuDeviceGet", byref(number), device)
        self._call("cuDevicePrimaryCtxRetain", byref(context), number)
        self._call("cuCtxPushCurrent_v2", context)
        try:
            self._call("cuStreamCreate", byref(stream), _NON_BLOCKING)
        finally:
            self._call("cuCtxPopCurrent_v2", byref(c_void_p()))
        return _Device(context, stream)
