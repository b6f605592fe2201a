"""CUDA memory regions that clients register by handle, and who has them open.

Tensors are copied between the device and the request, as those of system shared memory are: a
client that changes a region while a model runs harms its own answer only. The driver is loaded with
the first registration. Any thread. Source: spec HTTP-017, GRPC-014, TOOL-006.
"""

from __future__ import annotations

import base64
import binascii
import logging
import threading
import weakref

from serving import cuda_library
from serving.cuda_driver import HANDLE_SIZE, CudaDriver
from serving.cuda_library import CudaError, NoCudaError
from serving.errors import InvalidArgumentError, UnavailableError

logger = logging.getLogger(__name__)

MAX_SIZE = 2**63 - 1


class CudaMemory:
    """An open handle. It is closed when nobody holds this object any more."""

    def __init__(self, driver: CudaDriver, device: int, address: int) -> None:
        self._driver = driver
        self._device = device
        self._address = address
        closing = weakref.finalize(self, _close, driver, device, address)
        closing.atexit = False  # the process gives it back by ending, the driver may be gone before

    def read(self, offset: int, byte_size: int) -> bytearray:
        """Raises CudaError."""
        data = bytearray(byte_size)
        self._driver.read(self._device, self._address + offset, data)
        return data

    def write(self, offset: int, data: memoryview) -> None:
        """Raises CudaError."""
        self._driver.write(self._device, self._address + offset, data)


def _close(driver: CudaDriver, device: int, address: int) -> None:
    try:
        driver.close(device, address)
    except CudaError as error:
        logger.warning("a CUDA shared memory region could not be closed: %s", error)


class CudaOpener:
    """Opens handles of clients. Blocks: the first one of a device makes a context there."""

    def __init__(self) -> None:
        self._driver: CudaDriver | None = None
        self._lock = threading.Lock()

    def open(self, name: str, handle: bytes, device: int, byte_size: int) -> CudaMemory:
        """Raises: InvalidArgumentError, UnavailableError."""
        check_registration(name, handle, device, byte_size)
        driver = self._loaded(name)
        if device >= driver.device_count:
            raise InvalidArgumentError(
                f"CUDA shared memory region '{name}' is on device {device}, which this server does "
                f"not see; it sees 0 to {driver.device_count - 1}"
            )
        try:
            address = driver.open(device, handle)
        except CudaError as error:
            raise _cannot_open(name, error) from error
        try:
            _check_size(name, byte_size, driver.size_at(device, address))
        except CudaError as error:
            _close(driver, device, address)
            raise _cannot_open(name, error) from error
        except InvalidArgumentError:
            _close(driver, device, address)
            raise
        return CudaMemory(driver, device, address)

    def _loaded(self, name: str) -> CudaDriver:
        with self._lock:
            if self._driver is None:
                try:
                    self._driver = CudaDriver(cuda_library.LIBRARY)
                except NoCudaError as error:
                    raise InvalidArgumentError(
                        f"failed to register CUDA shared memory region '{name}', GPUs not "
                        f"supported: {error}; start the server where nvidia-smi lists a GPU, use "
                        "system shared memory, or send tensors in the request"
                    ) from error
            return self._driver


def check_registration(name: str, handle: bytes, device: int, byte_size: int) -> None:
    """What can be told without a device. Raises InvalidArgumentError."""
    if len(handle) != HANDLE_SIZE:
        raise InvalidArgumentError(
            f"the handle of CUDA shared memory region '{name}' has {len(handle)} bytes; one of "
            f"cudaIpcGetMemHandle has {HANDLE_SIZE}"
        )
    if device < 0:
        raise InvalidArgumentError(
            f"CUDA shared memory region '{name}' is on device {device}; devices are numbered from 0"
        )
    if not 0 < byte_size <= MAX_SIZE:
        raise InvalidArgumentError(
            f"Invalid args: CUDA shared memory region '{name}' has byte_size {byte_size}; it must "
            "be positive and fit an int64"
        )


def _check_size(name: str, byte_size: int, allocated: int) -> None:
    if allocated < byte_size:
        raise InvalidArgumentError(
            f"Invalid args: CUDA shared memory region '{name}' asks for {byte_size} bytes, its "
            f"allocation has {allocated}"
        )


def decode_handle(name: str, text: object) -> bytes:
    """The bytes of a handle in a JSON request. Raises InvalidArgumentError."""
    if not isinstance(text, str):
        raise InvalidArgumentError(
            f"the registration of CUDA shared memory region '{name}' must give 'raw_handle', an "
            "object with the handle as base64 in its member 'b64'"
        )
    try:
        return base64.b64decode("".join(text.split()), validate=True)  # C++ clients break lines
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(
            f"the handle of CUDA shared memory region '{name}' is not valid base64"
        ) from None


def _cannot_open(name: str, error: CudaError) -> UnavailableError | InvalidArgumentError:
    if error.is_out_of_memory:
        return UnavailableError(
            f"CUDA shared memory region '{name}' cannot be opened now, the device's memory is "
            f"full: {error}"
        )
    return InvalidArgumentError(
        f"Unable to open CUDA shared memory region '{name}': {error}; the process that made the "
        "handle must live, be another one than the server, and keep the memory allocated"
    )
