"""A promise that a model stays open a little longer, given to requests that will need it.

An ensemble decides at the start of a request which versions of its parts answer it. A part that is
replaced meanwhile gets no new requests, but finishes these first. Loop thread only.
"""

from __future__ import annotations

import asyncio


class Leases:
    """Of one model version."""

    __slots__ = ("_count", "_returned")

    def __init__(self) -> None:
        self._count = 0
        self._returned: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Leases {self._count}>"

    @property
    def count(self) -> int:
        return self._count

    def take(self) -> None:
        self._count += 1

    def give_back(self) -> None:
        self._count -= 1
        if not self._count:
            self._tell()

    async def returned(self) -> None:
        """Returns when nobody holds one, or when they were abandoned."""
        if self._count:
            self._returned = asyncio.get_running_loop().create_future()
            await self._returned

    def abandon(self) -> None:
        """Wait for them no longer."""
        self._tell()

    def _tell(self) -> None:
        if self._returned is not None and not self._returned.done():
            self._returned.set_result(None)
