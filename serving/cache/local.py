"""The cache in the server's own memory: one byte budget for all models, least recently used first
out (SCH-122). Loop thread only.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping

from serving.cache.base import CachedAnswer, Found, ResponseCache
from serving.errors import InvalidArgumentError

logger = logging.getLogger(__name__)

ENTRY_OVERHEAD = 512
"""Bytes that an entry takes besides its tensors: key, objects, its place in the order."""


class LocalCache(ResponseCache):
    def __init__(self, byte_size: int) -> None:
        super().__init__()
        self.counters.capacity_bytes = byte_size
        self._entries: OrderedDict[bytes, tuple[CachedAnswer, int]] = OrderedDict()
        self._has_warned = False

    def __repr__(self) -> str:
        counters = self.counters
        return (
            f"<LocalCache entries={len(self._entries)} "
            f"bytes={counters.used_bytes}/{counters.capacity_bytes}>"
        )

    def look_up(self, key: bytes, found: Found) -> None:
        start_ns = time.perf_counter_ns()
        entry = self._entries.get(key)
        counters = self.counters
        if entry is None:
            counters.misses += 1
        else:
            self._entries.move_to_end(key)
            counters.hits += 1
        counters.lookup_ns += time.perf_counter_ns() - start_ns
        found(None if entry is None else entry[0])

    def insert(self, key: bytes, answer: CachedAnswer) -> None:
        start_ns = time.perf_counter_ns()
        size = answer.byte_size + ENTRY_OVERHEAD
        if size > self.counters.capacity_bytes:
            self._warn(size)
            return
        if key not in self._entries:
            self._make_room(size)
            self._entries[key] = (answer, size)
            self.counters.used_bytes += size
            self.counters.entries = len(self._entries)
        self.counters.insertion_ns += time.perf_counter_ns() - start_ns

    def forget(self, generation: bytes) -> None:
        for key in [key for key in self._entries if key.startswith(generation)]:
            self._drop(key)

    def close(self) -> None:
        self._entries.clear()
        self.counters.entries = self.counters.used_bytes = 0

    def _make_room(self, size: int) -> None:
        while self.counters.used_bytes + size > self.counters.capacity_bytes:
            self._drop(next(iter(self._entries)))
            self.counters.evictions += 1

    def _drop(self, key: bytes) -> None:
        _, size = self._entries.pop(key)
        self.counters.used_bytes -= size
        self.counters.entries = len(self._entries)

    def _warn(self, size: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "an answer of %d bytes does not fit into the response cache of %d bytes and is "
                "not kept; raise size in --cache-config (told once)",
                size,
                self.counters.capacity_bytes,
            )


def make(settings: Mapping[str, str]) -> LocalCache:
    """`size` in bytes. Raises InvalidArgumentError."""
    unknown = sorted(settings.keys() - {"size"})
    if unknown:
        raise InvalidArgumentError(
            f"the response cache 'local' has no setting '{unknown[0]}'; it knows size (bytes), as "
            "in --cache-config=local,size=104857600"
        )
    text = settings.get("size", "")
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 15) or int(text) == 0:
        raise InvalidArgumentError(
            f"the response cache 'local' needs its size in bytes, a whole number above 0, not "
            f"'{text}', as in --cache-config=local,size=104857600"
        )
    return LocalCache(int(text))
