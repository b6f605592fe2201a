"""What a load or an unload means for the ensembles over that model: they come back, are loaded
anew, or go out of service because they no longer fit to it.

Loop thread only. Source: spec SCH-092; behaviour after the model repository manager of Triton's
core, which evaluates every model downstream of a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from serving.errors import ServingError
from serving.repository.parts import Parts
from serving.repository.served import Served
from serving.repository.source import Loader, LoadRequest
from serving.repository.states import UNLOADED

logger = logging.getLogger(__name__)


class Load(Protocol):
    async def __call__(self, name: str, request: LoadRequest, *, anew: bool = False) -> None:
        """`anew`: even if nothing of the model itself has changed. Raises ServingError."""


class Reviews:
    def __init__(
        self,
        parts: Parts,
        served: Mapping[str, Served],
        loader: Loader[Any],
        load: Load,
        withdraw: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`withdraw` takes an ensemble out of service until its parts fit again, with a reason."""
        self._parts = parts
        self._served = served
        self._loader = loader
        self._load = load
        self._withdraw = withdraw
        self._changed: set[str] = set()
        self._loaded: set[str] = set()
        self.neighbours: Sequence[Reviews] = ()
        """Those of other namespaces: their ensembles may have parts here."""

    def __repr__(self) -> str:
        return f"<Reviews changed={sorted(self._changed)}>"

    def note(self, name: str, *, is_loaded: bool = False) -> None:
        """The model was loaded or unloaded."""
        self._changed.add(name)
        if is_loaded:
            self._loaded.add(name)

    async def run(self, *, but_for: str = "") -> None:
        """Look at every ensemble over what has changed. Under no lock: it loads models.

        `but_for`: has just failed to load, with these changes in place.
        """
        while self._changed:
            changed, self._changed = self._changed, set()
            loaded, self._loaded = self._loaded, set()
            await self._look_at_users(changed, loaded, but_for)
            for neighbour in self.neighbours:
                await neighbour._look_at_users(changed)
            but_for = ""

    async def _look_at_users(
        self, changed: Iterable[str], loaded: Iterable[str] = (), but_for: str = ""
    ) -> None:
        for group in self._parts.concerned(changed, loaded):
            await asyncio.gather(*(self._look_at(name) for name in group if name != but_for))

    async def _look_at(self, name: str) -> None:
        try:
            if self._parts.may_return(name):
                await self._load(name, LoadRequest())
                return
            served = self._served.get(name)
            lost = self._parts.lost_part(name)
            if served is not None and lost:
                await self._withdraw(name, f"{UNLOADED} with its part '{lost}'")
            elif served is not None and self._loader.join(served.prepared) is not served.prepared:
                await self._load(name, served.source.request, anew=True)
        except ServingError as error:
            logger.warning("%s model=%s", error.message, name)
            await self._withdraw(name, error.message)
