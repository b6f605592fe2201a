"""The tasks of a repository manager, by kind: operations, attempts to load, drains. Loop thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from serving.errors import UnavailableError

T = TypeVar("T")


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Tasks {sorted(task.get_name() for task in self._running)}>"

    def spawn(self, work: Coroutine[Any, Any, T], kind: str = "operation") -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=kind)
        self._running.add(task)
        task.add_done_callback(self._forget)
        return task

    async def to_the_end(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """A caller that goes away must not leave a model half loaded.

        Raises: UnavailableError when the server stops before the end.
        """
        task = self.spawn(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise UnavailableError(f"{what} was given up: the server is stopping") from None
            raise

    def of_kind(self, kind: str) -> set[asyncio.Task[Any]]:
        return {task for task in self._running if task.get_name() == kind}

    def all(self) -> list[asyncio.Task[Any]]:
        return list(self._running)

    async def settled(self) -> None:
        """Wait until none runs any more."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # told to whoever waits, or to nobody when the deadline has passed


async def cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
