"""Messages out of the DATA of one call, whatever the borders of frames are. Loop thread.

A small message becomes bytes of its own. A large one is received into memory of its size, placed so
that the first large tensor in it is aligned: a model can then use it without a copy.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from serving.frontends.grpc_wire import MAX_MESSAGE_BYTES, PREFIX
from serving.frontends.http2.stream import Part
from serving.protocol.v2_grpc_split import first_raw_offset

_ALIGNMENT = 64
_SMALL = 16 * 1024
_MOST_WHOLE = 256
"""Messages that are taken apart ahead; a tiny one takes twenty times its bytes as an object."""


class MessageTooLargeError(Exception):
    """The client announces more than a message may have, or than there is memory for."""


class MessageReader:
    """Complete messages wait in `take` as (is it compressed, its bytes)."""

    __slots__ = ("_filled", "_is_compressed", "_memory", "_rest", "_start", "_whole")

    def __init__(self) -> None:
        self._start = b""
        """The beginning of a prefix whose end is yet to come."""
        self._memory: memoryview | None = None
        self._filled = 0
        self._is_compressed = False
        self._whole: list[tuple[bool, Part]] = []
        self._rest = bytearray()
        """What comes behind so many messages that nobody has taken yet."""

    @property
    def is_within_message(self) -> bool:
        return self._memory is not None or bool(self._start)

    def take(self) -> list[tuple[bool, Part]]:
        """Some of the messages that are complete; none when there are none.

        Raises MessageTooLargeError; nothing can be read after it.
        """
        if self._rest and not self._whole:
            with memoryview(self._rest) as view:
                size = self._parse(view)
            del self._rest[:size]
        whole, self._whole = self._whole, []
        return whole

    def feed(self, data: memoryview) -> None:
        """Raises MessageTooLargeError; nothing can be read after it."""
        size = 0 if self._rest else self._parse(data)
        if size < len(data):
            self._rest += data[size:]

    def _parse(self, data: memoryview) -> int:
        """Returns up to where messages were taken apart."""
        at, end = 0, len(data)
        while at < end and len(self._whole) < _MOST_WHOLE:
            if self._memory is not None:
                size = min(end - at, len(self._memory) - self._filled)
                self._memory[self._filled : self._filled + size] = data[at : at + size]
                self.received(size)
                at += size
                continue
            if self._start or end - at < PREFIX.size:
                size = min(PREFIX.size - len(self._start), end - at)
                self._start += data[at : at + size]
                at += size
                if len(self._start) < PREFIX.size:
                    break
                prefix, self._start = self._start, b""
                at = self._begin(prefix, data, at)
            else:
                at = self._begin(bytes(data[at : at + PREFIX.size]), data, at + PREFIX.size)
        return at

    def _begin(self, prefix: bytes, data: memoryview, at: int) -> int:
        """The message that starts at `at`. Returns up to where it was dealt with."""
        flag, size = cast(tuple[int, int], PREFIX.unpack(prefix))
        self._is_compressed = bool(flag & 1)
        if size > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(
                f"Received message larger than max ({size} vs. {MAX_MESSAGE_BYTES})"
            )
        if size <= len(data) - at:
            self._whole.append((self._is_compressed, bytes(data[at : at + size])))
            return at + size
        offset = 0 if self._is_compressed else first_raw_offset(data[at:])
        try:
            self._memory = _aligned(size, offset)
        except MemoryError:
            raise MessageTooLargeError(f"no memory for a message of {size} bytes") from None
        self._filled = 0
        return at

    def free_space(self) -> memoryview | None:
        return None if self._memory is None else self._memory[self._filled :]

    def received(self, count: int) -> None:
        """So many bytes of the memory are filled."""
        memory = self._memory
        assert memory is not None
        self._filled += count
        if self._filled == len(memory):
            self._memory = None
            self._whole.append((self._is_compressed, memory))


def _aligned(size: int, offset: int) -> memoryview:
    """Memory, not zeroed, whose byte `offset` is aligned."""
    if size < _SMALL:
        return memoryview(bytearray(size))
    memory = np.empty(size + 2 * _ALIGNMENT, dtype=np.uint8)
    start = -(memory.ctypes.data + offset) % _ALIGNMENT
    return memory.data[start : start + size]
