"""One lock for each name in use, and none for names that nobody uses. Loop thread only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NameLocks:
    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<NameLocks {sorted(self._locks)}>"

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        """Wait for earlier holders of the name, in order; then it is the caller's alone."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
