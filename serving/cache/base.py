"""What every response cache does, and what it keeps. Loop thread only.

A cache of the process is a `ResponseCache`; whatever lies outside of it is a `CacheStore` (see
`store`), which may block because a `StoreCache` calls it from threads of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from serving.response import InferenceResponse, OutputTensor, ParameterValue


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The answer to one request, as the model gave it; nobody writes to its arrays."""

    outputs: tuple[OutputTensor, ...]
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)

    @classmethod
    def copy_of(cls, response: InferenceResponse) -> CachedAnswer:
        """With arrays of its own: those of the response may be views into a whole batch."""
        return cls(tuple(map(_copied, response.outputs)), dict(response.parameters))

    @property
    def byte_size(self) -> int:
        """What the tensors take in memory."""
        return sum(_byte_size(output) for output in self.outputs)


def _copied(output: OutputTensor) -> OutputTensor:
    # An object array shares its elements: bytes, which do not change.
    array = np.array(output.array, copy=True, order="C")
    array.flags.writeable = False
    return OutputTensor(output.name, output.datatype, output.shape, array)


def _byte_size(output: OutputTensor) -> int:
    size = int(output.array.nbytes)
    if output.datatype.is_bytes:
        size += sum(map(len, output.array.ravel().tolist()))
    return size


@dataclass(slots=True)
class CacheCounters:
    """Running totals of one cache; names as in Triton's nv_cache_ families."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    lookup_ns: int = 0
    insertion_ns: int = 0
    entries: int = 0
    used_bytes: int = 0
    capacity_bytes: int = 0
    """0: the cache does not say."""
    failures: int = 0
    """Lookups and insertions that the store behind the cache did not do."""
    is_open: bool = True
    """False while the cache leaves its store alone, because that does not answer."""


Found = Callable[[CachedAnswer | None], None]


class ResponseCache(ABC):
    """One for the whole server. Keys are those of `serving.cache.key`."""

    is_shared = False
    """True: other servers see the same entries, and a restart does not lose them."""

    def __init__(self) -> None:
        self.counters = CacheCounters()

    @abstractmethod
    def look_up(self, key: bytes, found: Found) -> None:
        """Call `found` on the loop, at once or later, with the answer or None. Never raises."""

    @abstractmethod
    def insert(self, key: bytes, answer: CachedAnswer) -> None:
        """Keep the answer, if there is room. Never raises."""

    def forget(self, generation: bytes) -> None:
        """Drop the entries of a model that is gone: its keys begin with `generation`."""

    def close(self) -> None:
        """The server stops; nothing is asked after that."""
