"""Ensembles over the life of their parts: loaded before them, unloaded with them.

Joins the graph of dependencies with what serves. Loop thread only. Source: spec REP-058, REP-066.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from serving.errors import InvalidArgumentError, ServingError
from serving.repository.dependencies import DependencyGraph
from serving.repository.lifecycle import Lifecycle


class Parts:
    def __init__(self, lifecycle: Lifecycle, load: Callable[[str], Awaitable[None]]) -> None:
        """`load` loads a part by name and does nothing for one that is current."""
        self._lifecycle = lifecycle
        self._load = load
        self._graph = DependencyGraph()
        self._asked_for: set[str] = set()

    def __repr__(self) -> str:
        return f"<Parts {self._graph!r} asked_for={sorted(self._asked_for)}>"

    def note_asked_for(self, name: str) -> None:
        """Somebody has loaded it by name: it stays when an ensemble that uses it goes."""
        self._asked_for.add(name)

    async def bring(self, name: str, parts: Collection[str]) -> None:
        """Load those parts that do not serve. Raises InvalidArgumentError naming part and cause.

        A circle is refused before anything waits, so that two loads never wait for each other.
        """
        self._graph.put(name, parts)
        missing = [part for part in sorted(parts) if not self._lifecycle.ready_versions(part)]
        results = await asyncio.gather(*map(self._load, missing), return_exceptions=True)
        for part, result in zip(missing, results, strict=True):
            if isinstance(result, ServingError):
                raise InvalidArgumentError(
                    f"it needs model '{part}', which does not serve: {result.message}"
                ) from result
            if isinstance(result, BaseException):
                raise result

    def leaving(self, name: str, *, with_parts: bool) -> list[str]:
        """All that an unload of `name` takes out of service: users, itself, and parts if wanted."""
        order = self._graph.unload_order(name, with_parts=with_parts, asked_for=self._asked_for)
        users = filter(self._lifecycle.ready_versions, self._graph.all_users(name))
        groups = reversed(self._graph.load_order(users))
        everyone = [user for group in groups for user in group] + order
        self._asked_for.difference_update(everyone)
        for gone in everyone:
            self._graph.remove(gone)
        return everyone
