"""Client shared memory: regions that callers on this machine register, and tensors in them.

A region of system memory is read and written through its file descriptor, never mapped; one of CUDA
memory by copies (`serving.cuda_memory`). A client that shrinks the object, or changes it while the
model runs, can harm its own answer only. That costs one copy on each side, far less than a socket
does. Loop thread, except `read` and `write`, which any thread may call.
Source: spec HTTP-041, HTTP-100..104, GRPC-013, GRPC-014; decision: docs/adr/0014.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from serving.cuda_library import CudaError
from serving.cuda_memory import CudaMemory, CudaOpener, check_registration
from serving.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from serving.repository.load_threads import LoadThreads

_OBJECTS = Path("/dev/shm")  # noqa: S108 - where Linux has them, and no temporary file
_RESERVED_PREFIX = "triton_python_backend_shm_region_"
"""Of the segments between a Triton server and its Python models. Conch's own have no name."""
_MAX_OFFSET = 2**63 - 1
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Why an object cannot be opened that no client is to blame for."""


class Region(ABC):
    """Memory that is registered under a name. It stays open while a request still uses it."""

    def __init__(self, name: str, byte_size: int) -> None:
        self.name = name
        self.byte_size = byte_size

    def part(self, offset: int, byte_size: int, tensor: str) -> RegionPart:
        """Raises InvalidArgumentError where the part leaves the region."""
        if offset + byte_size > self.byte_size:
            raise InvalidArgumentError(
                f"Invalid offset for shared memory region '{self.name}': {tensor} asks for "
                f"{byte_size} bytes at {offset}, the region has {self.byte_size} bytes"
            )
        return RegionPart(self, offset, byte_size)

    @abstractmethod
    def read(self, offset: int, byte_size: int) -> bytearray:
        """Raises InvalidArgumentError where the client has taken the memory away."""

    @abstractmethod
    def write(self, offset: int, data: memoryview) -> None:
        """Raises InvalidArgumentError, likewise."""


class SystemRegion(Region):
    """A shared memory object."""

    def __init__(self, name: str, key: str, offset: int, byte_size: int, descriptor: int) -> None:
        super().__init__(name, byte_size)
        self.key = key
        self.offset = offset
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def __repr__(self) -> str:
        return f"<SystemRegion {self.name!r} key={self.key!r} {self.offset}+{self.byte_size}>"

    def read(self, offset: int, byte_size: int) -> bytearray:
        data = bytearray(byte_size)
        self._move(os.preadv, memoryview(data), offset)
        return data

    def write(self, offset: int, data: memoryview) -> None:
        self._move(os.pwritev, data, offset)

    def _move(
        self, move: Callable[[int, list[memoryview], int], int], data: memoryview, offset: int
    ) -> None:
        position = self.offset + offset
        # pwrite would make the object grow, and fill the machine's memory with it.
        if os.fstat(self._descriptor).st_size < position + len(data):
            raise InvalidArgumentError(
                f"shared memory region '{self.name}' has become smaller than it was registered; "
                "unregister it, and register it with its present size"
            )
        done = 0
        while done < len(data):
            moved = move(self._descriptor, [data[done:]], position + done)
            if not moved:
                raise InvalidArgumentError(
                    f"shared memory region '{self.name}' ended after {done} of {len(data)} bytes"
                )
            done += moved


class CudaRegion(Region):
    """Memory of a GPU."""

    def __init__(self, name: str, device_id: int, byte_size: int, memory: CudaMemory) -> None:
        super().__init__(name, byte_size)
        self.device_id = device_id
        self._memory = memory

    def __repr__(self) -> str:
        return f"<CudaRegion {self.name!r} device={self.device_id} {self.byte_size}>"

    def read(self, offset: int, byte_size: int) -> bytearray:
        try:
            return self._memory.read(offset, byte_size)
        except CudaError as error:
            raise self._gone(error) from error

    def write(self, offset: int, data: memoryview) -> None:
        try:
            self._memory.write(offset, data)
        except CudaError as error:
            raise self._gone(error) from error

    def _gone(self, error: CudaError) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"CUDA shared memory region '{self.name}' cannot be used any more: {error}; keep its "
            "memory allocated until it is unregistered, and register it anew"
        )


@dataclass(frozen=True, slots=True)
class RegionPart:
    """Where one tensor lies, or goes: bytes counted from the start of the region."""

    region: Region
    offset: int
    byte_size: int

    def read(self) -> bytearray:
        return self.region.read(self.offset, self.byte_size)

    def write(self, data: bytes | memoryview, output: str) -> None:
        """Raises InvalidArgumentError where the tensor is larger than the part."""
        view = memoryview(data).cast("B")
        if len(view) > self.byte_size:
            raise InvalidArgumentError(
                f"shared memory size specified with the request for output '{output}' "
                f"({self.byte_size} bytes) should be at least {len(view)} bytes to hold the results"
            )
        self.region.write(self.offset, view)


Kind = type[SystemRegion] | type[CudaRegion]
AnyRegion = TypeVar("AnyRegion", SystemRegion, CudaRegion)
_WORDS: Mapping[type[Region], str] = {SystemRegion: "system", CudaRegion: "cuda"}


class ClientMemory:
    """The regions of one server, by name."""

    def __init__(self, *, is_allowed: bool = False) -> None:
        self.is_allowed = is_allowed
        self._regions: dict[str, Region] = {}
        self._cuda = CudaOpener()

    def __repr__(self) -> str:
        return f"<ClientMemory allowed={self.is_allowed} regions={sorted(self._regions)}>"

    def check_allowed(self, kind: str) -> None:
        """Raises UnsupportedError while the server was not told to allow it."""
        if not self.is_allowed:
            raise UnsupportedError(
                f"client shared memory is off, so {kind} shared memory regions cannot be "
                "registered; start the server with --allow-client-shm=true"
            )

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Raises: AlreadyExistsError, InvalidArgumentError, InternalError."""
        self.check_allowed("system")
        self._check_name(name)
        if byte_size <= 0 or offset < 0 or offset + byte_size > _MAX_OFFSET:
            raise InvalidArgumentError(
                f"Invalid args: shared memory region '{name}' has offset {offset} and byte_size "
                f"{byte_size}; byte_size must be positive and both must fit an int64"
            )
        descriptor = _open(name, key)
        region = SystemRegion(name, key, offset, byte_size, descriptor)
        size = os.fstat(descriptor).st_size
        if size < offset + byte_size:
            raise InvalidArgumentError(
                f"Invalid args: shared memory object '{key}' has {size} bytes, region '{name}' "
                f"asks for {byte_size} bytes at offset {offset}"
            )
        self._regions[name] = region

    async def register_cuda(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Raises: AlreadyExistsError, InvalidArgumentError, UnavailableError.

        The first region of a device takes some tenths of a second: a thread opens it.
        """
        self.check_allowed("cuda")
        self._check_name(name)
        check_registration(name, handle, device, byte_size)
        loop = asyncio.get_running_loop()
        opening = partial(self._cuda.open, name, handle, device, byte_size)
        memory = await loop.run_in_executor(LoadThreads("cuda"), opening)
        self._check_name(name)
        self._regions[name] = CudaRegion(name, device, byte_size, memory)

    def _check_name(self, name: str) -> None:
        if name in self._regions:
            raise AlreadyExistsError(
                f"shared memory region '{name}' already in manager: unregister it first"
            )
        if not name:
            raise InvalidArgumentError("a shared memory region must have a name")

    def unregister(self, kind: Kind, name: str = "") -> None:
        """One region of the kind, or with an empty name all; one that is not there is no mistake.

        Raises UnsupportedError.
        """
        self.check_allowed(_WORDS[kind])
        for region in list(self._regions.values()):
            if isinstance(region, kind) and name in ("", region.name):
                del self._regions[region.name]

    def regions(self, kind: type[AnyRegion], name: str = "") -> list[AnyRegion]:
        """All of the kind, or the one of that name. Raises NotFoundError."""
        of_kind = [region for region in self._regions.values() if isinstance(region, kind)]
        found = [region for region in of_kind if name in ("", region.name)]
        if name and not found:
            other = self._regions.get(name)
            raise NotFoundError(
                f"Unable to find {_WORDS[kind]} shared memory region: '{name}'"
                + ("" if other is None else f", which is {_WORDS[type(other)]} shared memory")
            )
        return found

    def part(self, parameters: Mapping[str, object], tensor: str) -> RegionPart:
        """The part that a tensor's parameters name: shared_memory_region, _offset, _byte_size.

        Raises: InvalidArgumentError, NotFoundError.
        """
        name = parameters.get("shared_memory_region")
        if not isinstance(name, str):
            raise InvalidArgumentError(f"{tensor}: 'shared_memory_region' must be a string")
        if "shared_memory_byte_size" not in parameters:
            raise InvalidArgumentError(
                f"{tensor} names the shared memory region '{name}' and must give "
                "'shared_memory_byte_size' as well"
            )
        size = _unsigned(parameters, "shared_memory_byte_size", tensor)
        offset = _unsigned(parameters, "shared_memory_offset", tensor)
        return self._region(name).part(offset, size, tensor)

    def _region(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            off = "; client shared memory is off (--allow-client-shm=false)"
            off = "" if self.is_allowed else off
            raise NotFoundError(f"Unable to find shared memory region: '{name}'{off}")
        return region


def _unsigned(parameters: Mapping[str, object], key: str, tensor: str) -> int:
    value = parameters.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_OFFSET:
        raise InvalidArgumentError(
            f"{tensor}: '{key}' must be an unsigned integer that fits an int64, got {value!r}"
        )
    return value


def _open(name: str, key: str) -> int:
    """The object as shm_open would find it. Its file must lie in the folder of such objects."""
    plain = key.lstrip("/")
    if not plain or plain.startswith(_RESERVED_PREFIX):
        raise InvalidArgumentError(
            f"shared memory key '{key}' of region '{name}' is refused: it must name an object, and "
            f"the prefix {_RESERVED_PREFIX} is reserved"
        )
    if "/" in plain or "\0" in plain or plain in (".", ".."):
        raise InvalidArgumentError(
            f"shared memory key '{key}' of region '{name}' must be '/' and a name without '/'"
        )
    try:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(_OBJECTS / plain, flags)
    except OSError as error:
        kind = InternalError if error.errno in _OURS else InvalidArgumentError
        raise kind(
            f"Unable to open shared memory region: '{name}' (key '{key}'): {error.strerror}"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgumentError(f"shared memory key '{key}' of region '{name}' is no object")
    return descriptor
