"""The body of a request while it arrives: one allocation when its size is known. Loop thread."""

from __future__ import annotations

import numpy as np

_ALIGNMENT = 64


class BodyBuffer:
    """Collects a body: as the one chunk it came in, in chunks, or received in place."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._expected = -1
        self._json_size = 0
        self._memory: memoryview | None = None
        self.size = 0
        self.is_direct = False
        """The rest is received in place."""

    def expect(self, size: int, json_size: bytes) -> None:
        """`size` -1: unknown, a chunked body. `json_size`: where binary tensors start, if known."""
        self._expected = size
        self._json_size = int(json_size) if json_size.isdigit() and len(json_size) < 12 else 0

    def append(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.size += len(chunk)

    @property
    def missing(self) -> int:
        return self._expected - self.size

    @property
    def is_complete(self) -> bool:
        return self.size == self._expected

    def go_direct(self) -> None:
        """From now on the rest is received in place.

        The memory is not zeroed, and placed so that the first binary tensor is aligned: a model
        can then use it without a copy.
        """
        start = -self._json_size % _ALIGNMENT
        memory = np.empty(self._expected + _ALIGNMENT * 2, dtype=np.uint8)
        start += -memory.ctypes.data % _ALIGNMENT
        view = memory.data[start : start + self._expected]
        offset = 0
        for chunk in self._chunks:
            view[offset : offset + len(chunk)] = chunk
            offset += len(chunk)
        self._chunks = []
        self._memory = view
        self.is_direct = True

    def free_space(self) -> memoryview:
        assert self._memory is not None
        return self._memory[self.size :]

    def advance(self, count: int) -> None:
        self.size += count

    def view(self) -> memoryview:
        if self._memory is not None:
            return self._memory
        if len(self._chunks) == 1:
            return memoryview(self._chunks[0])
        return memoryview(b"".join(self._chunks))
