"""Models on their way out: no longer routed to, drained, closed, their files and agents seen off.

Loop thread only. Source: spec REP-065, REP-083.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from serving.repository.agents import Action
from serving.repository.attempts import LoadAttempts
from serving.repository.drains import Drains
from serving.repository.lifecycle import Lifecycle
from serving.repository.served import Served
from serving.repository.source import Source, discard
from serving.repository.tasks import Tasks

if TYPE_CHECKING:
    from serving.model import Model

logger = logging.getLogger(__name__)
_LOOK_S = 0.02
"""How often to see whether callers have finished."""


class Departures:
    def __init__(
        self,
        lifecycle: Lifecycle,
        served: dict[str, Served],
        tasks: Tasks,
        attempts: LoadAttempts,
    ) -> None:
        """`served` is the manager's own: what has no version left is taken out of it."""
        self._lifecycle = lifecycle
        self._served = served
        self._tasks = tasks
        self._attempts = attempts
        self._drains = Drains()

    def __repr__(self) -> str:
        return f"<Departures {self._drains!r}>"

    def retire(
        self, name: str, versions: Iterable[int], reason: str = ""
    ) -> list[asyncio.Task[None]]:
        """Out of routing now; drained, closed and UNAVAILABLE when the tasks are done.

        `reason` is shown by the index from now on, instead of "unloaded".
        """
        retired = []
        for version in versions:
            model = self._lifecycle.begin_unload(name, version, reason)
            if model is not None:
                retired.append(self._tasks.spawn(self._drain(name, version, model), "drain"))
        if not self._lifecycle.ready_versions(name):
            served = self._served.pop(name, None)
            if served is not None:
                self.see_off(served, retired, served.source)
        return retired

    def replace(self, models: Iterable[Model], source: Source | None) -> asyncio.Task[None]:
        """Drain models that no longer get requests, then drop the files they came from."""
        return self._tasks.spawn(self._put_away(models, source), "drain")

    def see_off(
        self, served: Served, leaving: list[asyncio.Task[None]], source: Source | None = None
    ) -> None:
        """The model's agents are told; when all of `leaving` has left, its files go too."""
        self._tasks.spawn(self._see_off(served, leaving, source), "drain")

    async def retire_all(self, deadline: float, timeout_s: float) -> bool:
        """Everything goes; what has not gone at `deadline` (time of the loop) is abandoned.

        False when something had to be abandoned.
        """
        await self._finish_callers(deadline - timeout_s / 2)
        for name in self._lifecycle.names():
            if ready := self._lifecycle.ready_versions(name):
                self.retire(name, ready)
        waiting = self._tasks.of_kind("drain")
        if waiting:
            left_s = deadline - asyncio.get_running_loop().time()
            await asyncio.wait(waiting, timeout=max(0.0, left_s))
        is_clean = all(task.done() for task in waiting)
        if not is_clean:
            await self._drains.abandon_all(timeout_s, waiting)
        return is_clean

    async def _finish_callers(self, until: float) -> None:
        """Models serve on for requests that were accepted: those may still call others."""
        loop = asyncio.get_running_loop()
        # An event of the last answer of many models would cost every answer something.
        while loop.time() < until and any(  # noqa: ASYNC110
            map(_is_calling, self._lifecycle.ready_models())
        ):
            await asyncio.sleep(_LOOK_S)

    async def _see_off(
        self, served: Served, leaving: list[asyncio.Task[None]], source: Source | None
    ) -> None:
        self._attempts.tell(served.prepared, Action.UNLOAD)
        await asyncio.gather(*leaving, return_exceptions=True)
        if source is not None:
            discard(source)
        told = self._attempts.tell(served.prepared, Action.UNLOAD_COMPLETE)
        if told is not None:
            await told

    async def _drain(self, name: str, version: int, model: Model) -> None:
        await self._drains.close([model])
        self._lifecycle.finish_unload(name, version, model)
        logger.info("model '%s' version %d is unloaded", name, version)

    async def _put_away(self, models: Iterable[Model], source: Source | None) -> None:
        await self._drains.close(models)
        if source is not None:
            discard(source)


def _is_calling(model: Model) -> bool:
    """It has requests that may lead to requests to other models."""
    if not model.inflight_count:
        return False
    return model.ensemble is not None or any(hasattr(host, "waits_for") for host in model.hosts)
