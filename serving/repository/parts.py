"""Ensembles over the life of their parts: loaded after them, out of service without them, back with
them.

Joins the graph of dependencies with what serves, and says which ensembles a change concerns; the
manager does it. Loop thread only. Source: spec REP-058, REP-066, SCH-092.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable

from serving.errors import InvalidArgumentError, ServingError
from serving.repository.dependencies import DependencyGraph
from serving.repository.lifecycle import Lifecycle
from serving.repository.served import Served


class Parts:
    def __init__(
        self,
        lifecycle: Lifecycle,
        load: Callable[[str], Awaitable[None]],
        serves: Callable[[str], bool],
    ) -> None:
        """`load` loads a part by name, here or where else it is, and does nothing for one that
        serves; `serves`: is there a ready version of it?
        """
        self._lifecycle = lifecycle
        self._load = load
        self._serves = serves
        self._graph = DependencyGraph()
        self._asked_for: set[str] = set()
        self._waiting: set[str] = set()
        """Ensembles that are to serve as soon as their parts do."""

    def __repr__(self) -> str:
        return f"<Parts {self._graph!r} waiting={sorted(self._waiting)}>"

    def note_asked_for(self, name: str) -> None:
        """Somebody has loaded it by name: it stays when an ensemble that uses it goes."""
        self._asked_for.add(name)

    def note_loaded(self, name: str) -> None:
        self._waiting.discard(name)

    def note_kept(self, name: str, served: Served | None) -> None:
        """A load has failed: what serves, if anything, goes on with the parts that it had."""
        if served is None:
            return
        self._waiting.discard(name)
        # Others may have been loaded meanwhile that would make a circle of it.
        with contextlib.suppress(InvalidArgumentError):
            self._graph.put(name, served.prepared.parts)

    def note_waiting(self, name: str) -> None:
        """It is wanted, and cannot serve because of its parts."""
        if self._graph.parts(name):
            self._waiting.add(name)

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

    def users(self, name: str) -> list[str]:
        """Serving ensembles that cannot serve without it, those first that use others of them."""
        users = filter(self._lifecycle.ready_versions, self._graph.all_users(name))
        return [user for group in reversed(self._graph.load_order(users)) for user in group]

    def leaving(self, name: str, *, with_parts: bool) -> list[str]:
        """What an unload of `name` takes out of service for good: itself, and parts if wanted."""
        order = self._graph.unload_order(name, with_parts=with_parts, asked_for=self._asked_for)
        self._asked_for.difference_update(order)
        self._waiting.difference_update(order)
        for gone in order:
            self._graph.remove(gone)
        return order

    def concerned(self, changed: Iterable[str], loaded: Iterable[str]) -> list[list[str]]:
        """Ensembles over the models that have changed, as groups: each needs only earlier ones.

        Those that were `loaded` themselves are among them: a part may have gone meanwhile.
        """
        users = {user for name in changed for user in self._graph.all_users(name)}
        users |= {name for name in loaded if self._graph.parts(name)}
        return self._graph.load_order(users)

    def lost_part(self, name: str) -> str:
        """A direct part that does not serve; empty where all do."""
        parts = sorted(self._graph.parts(name))
        return next((part for part in parts if not self._serves(part)), "")

    def may_return(self, name: str) -> bool:
        """It waits for parts, and all of them serve."""
        return name in self._waiting and not self.lost_part(name)
