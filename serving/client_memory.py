"""Client shared memory: regions that callers on this machine register, and tensors in them.

A region is read and written through its file descriptor, never mapped: a client that shrinks the
object, or changes it while the model runs, can harm its own answer only. That costs one copy on
each side, far less than a socket does. Loop thread, except `read` and `write`, which any thread may
call. Source: spec HTTP-041, HTTP-100..104, GRPC-013, GRPC-014; decision: docs/adr/0014.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

_OBJECTS = Path("/dev/shm")  # noqa: S108 - where Linux has them, and no temporary file
_RESERVED_PREFIX = "triton_python_backend_shm_region_"
"""Of the segments between a Triton server and its Python models. Conch's own have no name."""
_MAX_OFFSET = 2**63 - 1
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Why an object cannot be opened that no client is to blame for."""


class Region:
    """One registered shared memory object. It stays open while a request still uses it."""

    def __init__(self, name: str, key: str, offset: int, byte_size: int, descriptor: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def __repr__(self) -> str:
        return f"<Region {self.name!r} key={self.key!r} {self.offset}+{self.byte_size}>"

    def part(self, offset: int, byte_size: int, tensor: str) -> RegionPart:
        """Raises InvalidArgumentError where the part leaves the region."""
        if offset + byte_size > self.byte_size:
            raise InvalidArgumentError(
                f"Invalid offset for shared memory region '{self.name}': {tensor} asks for "
                f"{byte_size} bytes at {offset}, the region has {self.byte_size} bytes"
            )
        return RegionPart(self, offset, byte_size)

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


class ClientMemory:
    """The regions of one server, by name."""

    def __init__(self, *, is_allowed: bool = False) -> None:
        self.is_allowed = is_allowed
        self._regions: dict[str, Region] = {}

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
        if name in self._regions:
            raise AlreadyExistsError(
                f"shared memory region '{name}' already in manager: unregister it first"
            )
        if not name:
            raise InvalidArgumentError("a shared memory region must have a name")
        if byte_size <= 0 or offset < 0 or offset + byte_size > _MAX_OFFSET:
            raise InvalidArgumentError(
                f"Invalid args: shared memory region '{name}' has offset {offset} and byte_size "
                f"{byte_size}; byte_size must be positive and both must fit an int64"
            )
        descriptor = _open(name, key)
        region = Region(name, key, offset, byte_size, descriptor)
        size = os.fstat(descriptor).st_size
        if size < offset + byte_size:
            raise InvalidArgumentError(
                f"Invalid args: shared memory object '{key}' has {size} bytes, region '{name}' "
                f"asks for {byte_size} bytes at offset {offset}"
            )
        self._regions[name] = region

    def unregister(self, name: str = "") -> None:
        """One region, or with an empty name all. One that is not there is no mistake."""
        self.check_allowed("system")
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def regions(self, name: str = "") -> Sequence[Region]:
        """All, or the one of that name. Raises NotFoundError."""
        if not name:
            return list(self._regions.values())
        return [self._region(name)]

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
            raise NotFoundError(f"Unable to find system shared memory region: '{name}'{off}")
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
