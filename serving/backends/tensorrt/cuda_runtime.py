"""CUDA memory, streams, events and graphs, through the driver's own library.

It comes with the driver, so nothing needs to be installed. Its streams and addresses are those of
the CUDA runtime that TensorRT uses: both work in the primary context of a device. Load threads and
instances enter; a `Device` may be shared, a `Stream` belongs to one thread. Every call is checked.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving import cuda_library
from serving.cuda_library import CudaError, CudaLibrary, NoCudaError
from serving.errors import BackendError, UnavailableError

HINT = "install the NVIDIA driver (in a container: start it with --gpus all)"
_MAJOR, _MINOR = 75, 76
_NON_BLOCKING = 1
_EVENT_FLAGS = 2  # no timing
_BLOCKING_SYNC = 1
_CAPTURE_THREAD_LOCAL = 1

_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuDriverGetVersion": (c_void_p,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetName": (c_void_p, c_int, c_int),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxGetStreamPriorityRange": (c_void_p, c_void_p),
    "cuMemGetInfo_v2": (c_void_p, c_void_p),
    "cuMemAlloc_v2": (c_void_p, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (c_void_p, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuStreamCreateWithPriority": (c_void_p, c_uint, c_int),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (c_void_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventDestroy_v2": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, c_void_p),
    "cuGraphInstantiateWithFlags": (c_void_p, c_void_p, c_uint64),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
}


class DeviceError(BackendError):
    """A call of the driver failed."""

    def __init__(self, message: str, *, is_out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.is_out_of_memory = is_out_of_memory


class CudaDriver:
    """The driver's library, started. One for the process: see `driver()`."""

    def __init__(self, library: str) -> None:
        """Raises: UnavailableError where there is no driver, or one without devices."""
        try:
            self._cuda = CudaLibrary(_PROTOTYPES, library)
        except NoCudaError as error:
            raise UnavailableError(
                f"TensorRT needs an NVIDIA GPU and its driver, and {error}: {HINT}"
            ) from error
        self.device_count = self._cuda.device_count
        self.try_call = self._cuda.attempt
        """For steps back: the code instead of an error."""
        self._devices: dict[int, Device] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str, *arguments: Any) -> None:
        """Raises: DeviceError in the driver's words."""
        try:
            self._cuda.call(name, *arguments)
        except CudaError as error:
            raise DeviceError(str(error), is_out_of_memory=error.is_out_of_memory) from error

    def new(self, name: str, *arguments: Any) -> int:
        """The handle or address that a call makes: its first parameter."""
        handle = c_void_p()
        self(name, byref(handle), *arguments)
        return handle.value or 0

    def _int(self, name: str, *arguments: Any) -> int:
        value = c_int()
        self(name, byref(value), *arguments)
        return value.value

    @property
    def version(self) -> tuple[int, int]:
        """The newest CUDA that it runs, e.g. (13, 0)."""
        number = self._int("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def capability(self, handle: int) -> tuple[int, int]:
        return (
            self._int("cuDeviceGetAttribute", _MAJOR, handle),
            self._int("cuDeviceGetAttribute", _MINOR, handle),
        )

    def device(self, index: int) -> Device:
        """One object for each. Raises: UnavailableError for a device that is not there."""
        with self._lock:
            if index not in self._devices:
                self._devices[index] = Device(self, index)
            return self._devices[index]

    def device_handle(self, index: int) -> int:
        return self._int("cuDeviceGet", index)

    def device_name(self, handle: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", buffer, len(buffer), handle)
        return buffer.value.decode(errors="replace")


_driver: CudaDriver | None = None
_driver_lock = threading.Lock()


def driver() -> CudaDriver:
    """Raises: UnavailableError with what to do. A driver that is missing is looked for anew."""
    global _driver
    with _driver_lock:
        if _driver is None:
            # As NVML counts devices, and the config; the driver alone begins with the fastest.
            os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            _driver = CudaDriver(cuda_library.LIBRARY)
        return _driver


class Device:
    """The primary context of one GPU.

    It is never given back: TensorRT's own runtime works in it, too, and would lose it.
    """

    def __init__(self, cuda: CudaDriver, index: int) -> None:
        """Raises: UnavailableError for a device that is not there."""
        if index not in range(cuda.device_count):
            raise UnavailableError(
                f"there is no GPU {index}: the driver knows {cuda.device_count}, numbered from 0"
            )
        self.cuda = cuda
        self.index = index
        self._handle = cuda.device_handle(index)
        self.capability = cuda.capability(self._handle)
        self.name = f"GPU {index} ({cuda.device_name(self._handle)})"
        self._context = cuda.new("cuDevicePrimaryCtxRetain", self._handle)

    def enter(self) -> None:
        """Work of the calling thread goes to this device from now on."""
        self.cuda("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.cuda("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value


class DeviceBuffer:
    """Bytes on the current device; they stay where they are."""

    def __init__(self, cuda: CudaDriver, size: int, what: str) -> None:
        """Raises: BackendError saying how much was wanted for `what`."""
        self._cuda = cuda
        self.size = max(1, size)
        try:
            self.address = cuda.new("cuMemAlloc_v2", self.size)
        except DeviceError as error:
            if not error.is_out_of_memory:
                raise
            raise BackendError(
                f"the GPU has no {self.size} bytes left for {what}: unload another model, lower "
                "max_batch_size or the engine's profile, or use fewer instances"
            ) from error

    def free(self) -> None:
        if self.address:
            self._cuda.try_call("cuMemFree_v2", self.address)
            self.address = 0


class HostBuffer:
    """Bytes on the host, pinned where asked: copies to and from the device run aside then."""

    def __init__(self, cuda: CudaDriver, size: int, *, is_pinned: bool) -> None:
        self._cuda = cuda
        self.size = max(1, size)
        self._pinned = 0
        if is_pinned:
            self._pinned = cuda.new("cuMemHostAlloc", self.size, 0)
            memory = (ctypes.c_uint8 * self.size).from_address(self._pinned)
            self.bytes: NDArray[np.uint8] = np.frombuffer(memoryview(memory), dtype=np.uint8)
        else:
            self.bytes = np.empty(self.size, dtype=np.uint8)
        self.address: int = self.bytes.ctypes.data

    def view(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The first bytes as an array."""
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self.bytes[:count].view(dtype).reshape(shape)

    def free(self) -> None:
        """No view may be in use any more."""
        if self._pinned:
            self.bytes = np.empty(0, dtype=np.uint8)
            self._cuda.try_call("cuMemFreeHost", self._pinned)
            self._pinned = 0


class Stream:
    """A queue of work on the current device."""

    def __init__(self, cuda: CudaDriver, *, priority: str, waits_busily: bool) -> None:
        """`priority`: default, high or low; what the device has of it."""
        self._cuda = cuda
        least, greatest = c_int(), c_int()
        cuda("cuCtxGetStreamPriorityRange", byref(least), byref(greatest))
        level = {"high": greatest.value, "low": least.value}.get(priority, 0)
        self.handle = cuda.new("cuStreamCreateWithPriority", _NON_BLOCKING, level)
        flags = _EVENT_FLAGS | (0 if waits_busily else _BLOCKING_SYNC)
        self._event = cuda.new("cuEventCreate", flags)

    def upload(self, target: int, source: int, size: int) -> None:
        if size:
            self._cuda("cuMemcpyHtoDAsync_v2", target, source, size, self.handle)

    def download(self, target: int, source: int, size: int) -> None:
        if size:
            self._cuda("cuMemcpyDtoHAsync_v2", target, source, size, self.handle)

    def mark(self) -> None:
        self._cuda("cuEventRecord", self._event, self.handle)

    def wait(self) -> None:
        """Until all that was queued before the last `mark` is done."""
        self._cuda("cuEventSynchronize", self._event)

    def follow(self, other: Stream) -> None:
        """What is queued here from now on waits for the last `mark` of the other."""
        self._cuda("cuStreamWaitEvent", self.handle, other._event, 0)

    def drain(self) -> None:
        self._cuda("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        self._cuda.try_call("cuStreamSynchronize", self.handle)
        self._cuda.try_call("cuEventDestroy_v2", self._event)
        self._cuda.try_call("cuStreamDestroy_v2", self.handle)


@dataclass(slots=True)
class Graph:
    """A recorded sequence of launches."""

    cuda: CudaDriver
    executable: int

    @classmethod
    def capture(cls, cuda: CudaDriver, stream: Stream, work: Callable[[], None]) -> Graph:
        """Record what `work` queues on the stream; nothing of it runs. Raises: BackendError."""
        # Thread local: another instance's allocation must not break this capture.
        cuda("cuStreamBeginCapture_v2", stream.handle, _CAPTURE_THREAD_LOCAL)
        graph = c_void_p()
        try:
            work()
        finally:
            code = cuda.try_call("cuStreamEndCapture", stream.handle, byref(graph))
        if code or not graph.value:
            raise DeviceError(f"the CUDA graph could not be recorded (CUDA error {code})")
        try:
            return cls(cuda, cuda.new("cuGraphInstantiateWithFlags", graph, 0))
        finally:
            cuda.try_call("cuGraphDestroy", graph)

    def launch(self, stream: Stream) -> None:
        self.cuda("cuGraphLaunch", self.executable, stream.handle)

    def close(self) -> None:
        self.cuda.try_call("cuGraphExecDestroy", self.executable)
