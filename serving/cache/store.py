"""What a response cache outside of the process implements: bytes under keys, nothing more.

To write one, subclass `CacheStore` and announce the class under the entry point group
`conch.caches`, or put it as the class `Cache` into `<cache directory>/<name>/cache.py`. Its
constructor gets the settings of --cache-config. Several threads call it at once; it may block and
raise what it likes: the server waits for it no longer than its timeout, and leaves it alone while
it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

ENTRY_POINT_GROUP = "conch.caches"


class CacheStore(ABC):
    timeout_s = 0.1
    """How long a request waits for `get`; then the model executes it."""
    thread_count = 4
    """How many calls may run at once."""

    @abstractmethod
    def __init__(self, settings: Mapping[str, str]) -> None:
        """Keys and values of --cache-config. Connect later: this runs while the server starts.

        Raises: serving.errors.InvalidArgumentError for a setting that is unknown or wrong.
        """

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """What was put under `key`, None if there is nothing (any more)."""

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Several at once, in the order of the keys; for stores that can do it in one go."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None: ...

    def close(self) -> None:
        """The server stops."""
