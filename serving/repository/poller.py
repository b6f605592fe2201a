"""Poll mode: decide from two looks at the repository what is to be loaded and unloaded.

`PollTracker` is the decision, a plain object without I/O; `Poller` is the loop task around it.
A change must look the same twice before it counts, so that a model that is still being copied is
left alone. Loop thread only; scanning itself runs in a thread. Source: spec REP-052, REP-054.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serving.repository.storage import ModelStamp

logger = logging.getLogger(__name__)

_SECOND_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class PollPlan:
    load: dict[str, ModelStamp] = field(default_factory=dict)
    unload: list[str] = field(default_factory=list)
    settling: list[str] = field(default_factory=list)
    """Changed since the last look; worth another look soon."""


class PollTracker:
    def __init__(self) -> None:
        self._served: dict[str, ModelStamp] = {}
        self._seen: dict[str, ModelStamp | None] = {}
        """What differed from `_served` at the last look; None: the model was gone."""

    def __repr__(self) -> str:
        return f"<PollTracker served={sorted(self._served)} changed={sorted(self._seen)}>"

    def look(self, scan: Mapping[str, ModelStamp], busy: Collection[str] = frozenset()) -> PollPlan:
        """`busy` models still load or unload from an earlier look; they are left out."""
        plan = PollPlan()
        seen: dict[str, ModelStamp | None] = {}
        for name in sorted((scan.keys() | self._served.keys()) - set(busy)):
            now = scan.get(name)
            if now == self._served.get(name):
                continue
            seen[name] = now
            if name not in self._seen or self._seen[name] != now:
                plan.settling.append(name)
            elif now is None:
                plan.unload.append(name)
            else:
                plan.load[name] = now
        self._seen = seen
        return plan

    def record_loaded(self, name: str, stamp: ModelStamp) -> None:
        """A load that fails is not recorded, so that the next look tries again."""
        self._served[name] = stamp
        self._seen.pop(name, None)

    def record_unloaded(self, name: str) -> None:
        self._served.pop(name, None)
        self._seen.pop(name, None)


class PollTarget(Protocol):
    """What the poller needs of the manager."""

    async def scan(self) -> dict[str, ModelStamp]: ...

    async def poll_load(self, name: str) -> ModelStamp | None:
        """The stamp of what was loaded, None when the load failed. Raises no ServingError."""

    async def poll_unload(self, name: str) -> None: ...


class Poller:
    def __init__(
        self,
        target: PollTarget,
        interval_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._target = target
        self._interval_s = interval_s
        self._sleep = sleep
        self._running: dict[str, asyncio.Task[None]] = {}
        self.tracker = PollTracker()

    async def run(self) -> None:
        """Until cancelled. An error of one round is logged; the next round runs."""
        while True:
            await self._sleep(self._interval_s)
            try:
                plan = await self.poll_once()
                if plan.settling:
                    await self._sleep(min(_SECOND_LOOK_S, self._interval_s))
                    await self.poll_once()
            except OSError as error:  # a root that is away, most likely
                logger.error(
                    "a poll of the model repository failed: %s; the next one goes on", error
                )
            except Exception:
                logger.exception("a poll of the model repository failed; the next one goes on")

    async def poll_once(self) -> PollPlan:
        """Look once and start what follows; a slow or broken model delays no other one."""
        plan = self.tracker.look(await self._target.scan(), self._running)
        for name in plan.load:
            self._start(name, self._load(name))
        for name in plan.unload:
            self._start(name, self._unload(name))
        return plan

    async def finish(self) -> None:
        """Wait until what the looks so far have started is done."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._running.pop(name, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("poll of model '%s' failed", name, exc_info=error)

    async def _load(self, name: str) -> None:
        stamp = await self._target.poll_load(name)
        if stamp is not None:
            self.tracker.record_loaded(name, stamp)

    async def _unload(self, name: str) -> None:
        await self._target.poll_unload(name)
        self.tracker.record_unloaded(name)
