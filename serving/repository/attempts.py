"""Attempts to load: within the slots of the server, before a deadline, and nothing left behind.

A load that is given up, because its time is over or because the server stops, may still bring a
Model: that one is closed at once. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from serving.errors import (
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    UnavailableError,
    UnsupportedError,
)
from serving.repository.agents import Action
from serving.repository.source import Loader, ModelChange, PreparedModel, RemoteFiles, Source

if TYPE_CHECKING:
    from serving.model import Model

logger = logging.getLogger(__name__)

_RETRY_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_DOWNLOADS_AT_ONCE = 4

T = TypeVar("T")
Start = Callable[[], Coroutine[Any, Any, T]]
Late = Callable[[asyncio.Task[T]], None]


class Spawn(Protocol):
    """Starts a task that its owner keeps track of, by kind."""

    def __call__(self, work: Coroutine[Any, Any, T], kind: str = ...) -> asyncio.Task[T]: ...


@dataclass(frozen=True, slots=True)
class Change:
    """A serving version whose new instances have started."""

    pending: ModelChange


if TYPE_CHECKING:
    Outcome = Model | Change | BaseException


class LoadAttempts:
    def __init__(
        self,
        loader: Loader[Any],
        threads: Executor,
        spawn: Spawn,
        *,
        slots: asyncio.Semaphore,
        timeout_s: float,
        retries: int = 0,
    ) -> None:
        """`slots`: one for each attempt that may run at once. `retries`: how often a version is
        tried again that failed and might succeed then.
        """
        self._loader = loader
        self._threads = threads
        self._spawn = spawn
        self._slots = slots
        self._downloads = asyncio.Semaphore(_DOWNLOADS_AT_ONCE)
        self._timeout_s = timeout_s
        self._retries = retries

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def fetch(self, remote: RemoteFiles, tell: Callable[[str], None]) -> None:
        """Under no deadline of the load: each answer of the store has its own.

        Raises: ServingError.
        """
        stop = threading.Event()
        loop = asyncio.get_running_loop()

        def tell_on_loop(told: str) -> None:
            with contextlib.suppress(RuntimeError):  # A download may outlive the loop.
                loop.call_soon_threadsafe(tell, told)

        async with self._downloads:
            fetching = self._spawn(
                self.in_thread(lambda: remote.fetch(stop, tell_on_loop)), kind="attempt"
            )
            try:
                await asyncio.shield(fetching)
            except asyncio.CancelledError:
                stop.set()
                raise

    async def prepare(self, source: Source) -> PreparedModel:
        """Raises ServingError."""
        async with self._slots:
            reading = self._spawn(
                self.in_thread(lambda: self._loader.prepare(source)), kind="attempt"
            )
            prepared: PreparedModel = await self._before_deadline(
                reading, "reading its configuration", self._refuse_late
            )
            return prepared

    async def load(
        self,
        prepared: PreparedModel,
        versions: Iterable[int],
        updates: Mapping[int, Model] = MappingProxyType({}),
    ) -> dict[int, Outcome]:
        """Every version side by side, new ones and changes of serving ones; how each one ended."""
        works: dict[int, Start[Any]] = {
            version: partial(self._load_once, prepared, version) for version in versions
        }
        for version, model in updates.items():
            works[version] = partial(self._update_once, prepared, version, model)
        tasks = {
            version: self._spawn(self._with_retries(work), kind="attempt")
            for version, work in works.items()
        }
        try:
            if tasks:
                await asyncio.wait(tasks.values())
        except asyncio.CancelledError:
            for task in tasks.values():
                _give_up(task, self._undo_late)
            raise
        if any(task.cancelled() for task in tasks.values()):
            raise asyncio.CancelledError
        return {version: task.exception() or task.result() for version, task in tasks.items()}

    async def _with_retries(self, work: Start[T]) -> T:
        for failures in itertools.count(1):
            try:
                async with self._slots:
                    return await work()
            except ServingError as error:
                if failures > self._retries or not _may_succeed_later(error):
                    raise
                logger.warning(
                    "a load failed and is tried again, %d of %d: %s",
                    failures,
                    self._retries,
                    error.message,
                )
            # The slot is free meanwhile: other models load.
            await asyncio.sleep(min(_RETRY_PAUSE_S * 2 ** (failures - 1), _LONGEST_PAUSE_S))
        raise AssertionError("counting has no end")

    async def _load_once(self, prepared: PreparedModel, version: int) -> Model:
        loading: asyncio.Task[Model] = self._spawn(
            self._loader.load_version(prepared, version, self._threads), kind="attempt"
        )
        return await self._before_deadline(loading, "loading", self._undo_late)

    async def _update_once(self, prepared: PreparedModel, version: int, model: Model) -> Change:
        async def start() -> Change:
            return Change(
                await self._loader.prepare_update(prepared, version, model, self._threads)
            )

        starting: asyncio.Task[Change] = self._spawn(start(), kind="attempt")
        return await self._before_deadline(starting, "starting instances", self._undo_late)

    async def _before_deadline(self, task: asyncio.Task[T], phase: str, late: Late[T]) -> T:
        try:
            await asyncio.wait({task}, timeout=self._timeout_s)
        except asyncio.CancelledError:
            _give_up(task, late)
            raise
        if task.done():
            return task.result()
        _give_up(task, late)
        raise UnavailableError(
            f"{phase} did not end within {self._timeout_s:g} s; the attempt was given up"
        )

    def _refuse_late(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.tell(task.result(), Action.LOAD_FAIL)

    def tell(self, prepared: PreparedModel, action: Action) -> asyncio.Task[None] | None:
        """Tell the model's agents what becomes of it; None if it has none."""
        agents = prepared.agents
        if agents is None:
            return None
        before = agents.telling

        async def tell() -> None:
            if before is not None:
                await asyncio.wait({before})
            await self.in_thread(lambda: agents.finish(action))

        agents.telling = self._spawn(tell(), kind="drain")
        return agents.telling

    def _undo_late(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.undo(task.result())

    def undo(self, outcome: Model | Change) -> None:
        """Close what has been started and is not wanted."""
        if isinstance(outcome, Change):
            self._spawn(outcome.pending.abandon(), kind="drain")
        else:
            self._spawn(outcome.drain_and_close(), kind="drain")


def _may_succeed_later(error: BaseException | None) -> bool:
    """A fault of the files stays one however often they are read."""
    if isinstance(error, ModelLoadError) and error.__cause__ is not None:
        return _may_succeed_later(error.__cause__)
    return not isinstance(error, (InvalidArgumentError, UnsupportedError)) or isinstance(
        error, ModelLoadError
    )


def _give_up(task: asyncio.Task[T], late: Late[T]) -> None:
    task.add_done_callback(late)
    task.cancel()


def reason_of(name: str, version: int, error: BaseException) -> str:
    """For the index: why the version did not load."""
    if isinstance(error, ServingError):
        return error.message
    logger.error("model '%s' version %d failed to load", name, version, exc_info=error)
    return f"unexpected {type(error).__name__}: {error}"
