"""Tensors between a worker and an instance process: shared segments for big ones, inline for small.

Segments are anonymous memory files whose descriptors are handed over the socket: they have no
name that anybody could guess or that could stay behind, the size limit of /dev/shm does not apply
to them, and the kernel frees them with the last process that maps them, however it died. They are
sealed against shrinking, so that a rogue child cannot make the worker fault.

The side that fills a segment owns it (`SegmentPool`) and uses it again when the other side
(`PeerSegments`) reports that no tensor views it any more. One frame uses at most one segment.
Each object belongs to one thread; only `released` may be appended to from any thread, because a
model may drop its last view of a tensor anywhere.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.datatypes import (
    BY_NAME,
    DataType,
    deserialize_bytes,
    serialize_bytes,
)
from serving.errors import InvalidArgumentError
from serving.instance.wire import ALIGNMENT, INLINE, Frame, TensorHeader, WireError

INLINE_LIMIT_BYTES = 16 * 1024
"""Up to this size a copy through the socket costs less than a segment."""
MIN_SEGMENT_BYTES = 256 * 1024
MAX_IDLE_BYTES = 256 * 1024 * 1024
MAX_IDLE_SEGMENTS = 8
_SEGMENT_ALIGNMENT = 64
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(slots=True, eq=False)
class Segment:
    number: int
    descriptor: int
    memory: mmap.mmap
    size: int


def _round_up(nbytes: int) -> int:
    """Powers of two up to 64 MiB, then multiples of 16 MiB."""
    if nbytes <= MIN_SEGMENT_BYTES:
        return MIN_SEGMENT_BYTES
    if nbytes > 64 << 20:
        step = 16 << 20
        return -(-nbytes // step) * step
    return 1 << (nbytes - 1).bit_length()


class SegmentPool:
    """Segments that this side fills. Grows on demand; keeps a bounded number of idle ones."""

    def __init__(self) -> None:
        self._created = 0
        self._busy: dict[int, Segment] = {}
        self._idle: list[Segment] = []
        self.forgotten: list[int] = []
        """Numbers to tell the other side about, see `wire.Segments`."""
        self.is_used = False
        """Set by `acquire`; for whoever watches."""

    def acquire(self, nbytes: int) -> tuple[Segment, bool]:
        """A segment of at least `nbytes`, and whether the other side does not know it yet."""
        fitting = [segment for segment in self._idle if segment.size >= nbytes]
        if fitting:
            segment = min(fitting, key=lambda item: item.size)
            self._idle.remove(segment)
            is_new = False
        else:
            segment = self._create(_round_up(nbytes))
            is_new = True
        self._busy[segment.number] = segment
        self.is_used = True
        return segment, is_new

    def release(self, numbers: list[int]) -> None:
        for number in numbers:
            segment = self._busy.pop(number, None)
            if segment is not None:
                self._idle.append(segment)
        while len(self._idle) > MAX_IDLE_SEGMENTS or self._idle_bytes > MAX_IDLE_BYTES:
            self._drop(self._idle.pop(0))

    def trim(self) -> None:
        """Keep none that is idle."""
        while self._idle:
            self._drop(self._idle.pop())

    @property
    def is_empty(self) -> bool:
        return not self._busy and not self._idle

    @property
    def _idle_bytes(self) -> int:
        return sum(segment.size for segment in self._idle)

    @property
    def busy_count(self) -> int:
        return len(self._busy)

    def close(self) -> None:
        for segment in [*self._busy.values(), *self._idle]:
            self._drop(segment)
        self._busy.clear()
        self._idle.clear()

    def _create(self, size: int) -> Segment:
        descriptor = os.memfd_create("tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            memory = mmap.mmap(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        number = self._created
        self._created += 1
        return Segment(number, descriptor, memory, size)

    def _drop(self, segment: Segment) -> None:
        os.close(segment.descriptor)
        self.forgotten.append(segment.number)


class PeerSegments:
    """Segments that the other side fills, mapped here. Numbered in the order of their arrival."""

    def __init__(self, *, writable: bool) -> None:
        self._access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._arrived = 0
        self._mapped: dict[int, mmap.mmap] = {}
        self._watched: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        self.released: deque[int] = deque()
        """Segments that no tensor views any more; to be reported to their owner."""
        self.is_used = False
        """Set by `open`; for whoever watches."""

    def add(self, descriptors: list[int]) -> None:
        """Map new segments. Takes the descriptors."""
        for descriptor in descriptors:
            try:
                if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK == 0:
                    raise WireError("a shared segment is not sealed")
                size = os.fstat(descriptor).st_size
                self._mapped[self._arrived] = mmap.mmap(descriptor, size, access=self._access)
            except OSError as error:
                raise WireError(f"a shared segment cannot be mapped: {error.strerror}") from None
            finally:
                os.close(descriptor)
            self._arrived += 1

    def open(self, number: int) -> NDArray[np.uint8]:
        """All bytes of a segment. Once the array and all views of it are gone, it is released."""
        memory = self._mapped.get(number)
        if memory is None:
            raise WireError(f"segment {number} is not known")
        self.is_used = True
        whole: NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
        released = self.released
        watched = self._watched

        def gone(_: object) -> None:
            watched.pop(number, None)
            released.append(number)

        watched[number] = weakref.ref(whole, gone)
        return whole

    @property
    def is_empty(self) -> bool:
        return not self._mapped

    def take_released(self) -> list[int]:
        taken: list[int] = []
        while self.released:
            taken.append(self.released.popleft())
        return taken

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self._mapped.pop(number, None)

    def close(self) -> None:
        """Views that live on keep their mapping."""
        self._mapped.clear()


class TensorPacker:
    """Puts the tensors of one frame into its inline part or into one segment."""

    def __init__(self, pool: SegmentPool) -> None:
        self._pool = pool
        self._inline_length = 0
        self._shared_length = 0
        self.shared: list[tuple[TensorHeader, DataType, NDArray[np.generic] | bytes]] = []
        """What `finish` puts into a segment."""
        self.blobs: list[bytes] = []

    def add(self, name: str, datatype: DataType, array: NDArray[np.generic]) -> TensorHeader:
        content: NDArray[np.generic] | bytes = array
        if datatype.is_bytes:
            content = serialize_bytes(array.astype(np.object_, copy=False))
            nbytes = len(content)
        elif array.dtype is datatype.dtype and array.nbytes <= INLINE_LIMIT_BYTES:
            nbytes = array.nbytes
            content = array.tobytes()
        else:
            nbytes = array.size * datatype.size
        if nbytes <= INLINE_LIMIT_BYTES:
            offset = (self._inline_length + ALIGNMENT - 1) & -ALIGNMENT
            self._inline_length = offset + nbytes
            self.blobs.append(content if type(content) is bytes else _raw(datatype, content))
            return TensorHeader(name, datatype.name, array.shape, INLINE, offset, nbytes)
        header = TensorHeader(name, datatype.name, array.shape, INLINE, 0, nbytes)
        header.offset = -(-self._shared_length // _SEGMENT_ALIGNMENT) * _SEGMENT_ALIGNMENT
        self._shared_length = header.offset + nbytes
        self.shared.append((header, datatype, content))
        return header

    def finish(self) -> list[int]:
        """Copy the big tensors. Returns descriptors that must travel with the frame."""
        if not self.shared:
            return []
        segment, is_new = self._pool.acquire(self._shared_length)
        for header, datatype, content in self.shared:
            header.segment = segment.number
            if isinstance(content, bytes):
                segment.memory[header.offset : header.offset + header.nbytes] = content
            else:
                target: NDArray[np.generic] = np.ndarray(
                    content.shape, datatype.dtype, segment.memory, header.offset
                )
                np.copyto(target, content)
        self.shared.clear()
        return [segment.descriptor] if is_new else []


def _raw(datatype: DataType, content: NDArray[np.generic] | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    if content.dtype != datatype.dtype:
        content = content.astype(datatype.dtype)
    return content.tobytes()


class TensorUnpacker:
    """Turns the tensor headers of one frame into arrays, as views wherever the type allows."""

    def __init__(self, frame: Frame, peer: PeerSegments) -> None:
        self._frame = frame
        self._peer = peer
        self._open: dict[int, NDArray[np.uint8]] = {}

    def unpack(self, header: TensorHeader) -> tuple[DataType, NDArray[np.generic]]:
        datatype = BY_NAME.get(header.datatype)
        if datatype is None:
            raise WireError(f"tensor '{header.name}' has the unknown datatype {header.datatype!r}")
        count = math.prod(header.shape)
        if datatype.size and count * datatype.size != header.nbytes:
            raise WireError(f"tensor '{header.name}' has {header.nbytes} bytes, not what it needs")
        if count == 0:
            return datatype, np.empty(header.shape, datatype.dtype)
        whole: bytearray | NDArray[np.uint8] = self._frame.payload
        start = header.offset
        if header.segment == INLINE:
            start += self._frame.data_start
        else:
            whole = self._segment(header.segment)
        if header.offset < 0 or start + header.nbytes > len(whole):
            raise WireError(f"tensor '{header.name}' lies outside of its data")
        if datatype.size:
            try:
                return datatype, np.ndarray(header.shape, datatype.dtype, whole, start)
            except ValueError as error:
                raise WireError(f"tensor '{header.name}': {error}") from None
        data = np.frombuffer(whole, np.uint8, header.nbytes, start)
        try:
            flat = deserialize_bytes(data.data, count, header.name)
        except InvalidArgumentError as error:
            raise WireError(error.message) from None
        return datatype, flat.reshape(header.shape)

    def _segment(self, number: int) -> NDArray[np.uint8]:
        opened = self._open.get(number)
        if opened is None:
            opened = self._open[number] = self._peer.open(number)
        return opened
