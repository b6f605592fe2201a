"""Loads and unloads: from a wish ("load x") over files and threads to states of the lifecycle.

Orchestration only: the lifecycle decides on states, the loader turns files into Models, storage
knows the disk. Operations on one model run one after the other, those on different models side by
side. Loop thread only; what blocks goes to loading threads. Source: spec REP-050..066.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.errors import InvalidArgumentError, ModelLoadError, ServingError, UnavailableError
from serving.repository import override
from serving.repository.agents import Action
from serving.repository.attempts import Change, LoadAttempts, reason_of
from serving.repository.cloud.root import CloudRoot
from serving.repository.departures import Departures
from serving.repository.index import index_rows
from serving.repository.lifecycle import Lifecycle
from serving.repository.name_locks import NameLocks
from serving.repository.parts import Parts
from serving.repository.reviews import Reviews
from serving.repository.roots import Roots
from serving.repository.served import LoadPlan, Served, is_current, plan
from serving.repository.source import (
    Loader,
    LoadRequest,
    PreparedModel,
    Source,
    check_model_name,
    discard,
    superseded,
)
from serving.repository.states import DUPLICATE, UNLOADED, IndexEntry
from serving.repository.storage import ModelStamp, stamp_model
from serving.repository.tasks import Tasks, cancel

if TYPE_CHECKING:
    from serving.model import Model

logger = logging.getLogger(__name__)


class RepositoryManager:
    def __init__(
        self,
        roots: Collection[Path | CloudRoot],
        lifecycle: Lifecycle,
        loader: Loader[Any],
        threads: Executor,
        *,
        load_slots: asyncio.Semaphore | None = None,
        load_timeout_s: float = 600.0,
        load_retries: int = 0,
    ) -> None:
        self.roots = Roots(roots)
        self._lifecycle = lifecycle
        self._loader = loader
        self._tasks = Tasks()
        self._attempts = LoadAttempts(
            loader,
            threads,
            self._tasks.spawn,
            slots=load_slots or asyncio.Semaphore(4),
            timeout_s=load_timeout_s,
            retries=load_retries,
        )
        self._locks = NameLocks()
        self._load_timeout_s = load_timeout_s
        self._served: dict[str, Served] = {}
        self._departures = Departures(lifecycle, self._served, self._tasks, self._attempts)
        self._parts = Parts(lifecycle, self._load_part, self.serves)
        self._reviews = Reviews(self._parts, self._served, loader, self._load, self._withdraw)
        self._neighbours: Sequence[RepositoryManager] = ()
        self._is_closing = False

    # Operations

    async def load(self, name: str, request: LoadRequest | None = None) -> None:
        """Returns when the model is READY; what it replaces drains in the background.

        Raises: ModelLoadError, InvalidArgumentError; what served before then still does.
        """
        check_model_name(name)
        if self._is_closing:
            raise UnavailableError(f"cannot load model '{name}': the server is stopping")
        request = request or LoadRequest()
        if request.files and request.config is None:
            raise InvalidArgumentError(
                f"'config' must be specified for model file override of model '{name}'"
            )
        await self._tasks.to_the_end(
            self._load_by_name(name, request), f"the load of model '{name}'"
        )

    async def _load_by_name(self, name: str, request: LoadRequest) -> None:
        try:
            await self._load(name, request)
        except ServingError:
            await self._reviews.run(but_for=name)
            raise
        self._parts.note_asked_for(name)
        await self._reviews.run()

    async def load_all(self, names: Iterable[str] | None = None) -> dict[str, ServingError]:
        """Load the named models, or all there are. Returns what failed and why."""
        wanted = list(self.roots.names() if names is None else dict.fromkeys(names))
        failed: dict[str, ServingError] = {}

        async def attempt(name: str) -> None:
            try:
                await self.load(name)
            except ServingError as error:
                failed[name] = error

        await asyncio.gather(*(attempt(name) for name in wanted))
        return failed

    def meet(self, neighbours: Sequence[RepositoryManager]) -> None:
        """The managers of other namespaces, where parts may be that this one does not have."""
        self._neighbours = neighbours
        self._reviews.neighbours = [item._reviews for item in neighbours]

    async def has(self, name: str) -> bool:
        """Is there such a model on disk, or anything of it in the lifecycle?"""
        if self.is_known(name):
            return True
        return await self._attempts.in_thread(lambda: self.roots.has(name))

    def is_known(self, name: str) -> bool:
        return self._lifecycle.is_known(name)

    async def unload(
        self, name: str, version: int | None = None, *, with_parts: bool = False
    ) -> None:
        """Take the model, or one version, out of service; it drains in the background.

        Ensembles that need it go with it; `with_parts`: and parts that it alone has brought in.
        An unknown name is no error (REP-065); an unknown version of a known one is.
        """
        check_model_name(name)
        work = self._unload(name, version, with_parts=with_parts)
        await self._tasks.to_the_end(work, f"the unload of model '{name}'")

    def index(self, *, ready_only: bool = False) -> list[IndexEntry]:
        return index_rows(self.roots.names(), self._lifecycle, ready_only=ready_only)

    async def close(self, timeout_s: float) -> bool:
        """Refuse new work, drain everything. False when something had not ended in time: its
        requests have been answered then, and its processes killed.
        """
        self._is_closing = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await cancel(self._tasks.of_kind("operation"))
        if attempts := self._tasks.of_kind("attempt"):
            await asyncio.wait(attempts, timeout=timeout_s)
        is_clean = await self._departures.retire_all(deadline, timeout_s)
        await cancel(self._tasks.all())
        for served in self._served.values():
            discard(served.source)
        return is_clean

    async def settled(self) -> None:
        """Wait until nothing loads or drains any more."""
        await self._tasks.settled()

    # For the poller

    async def scan(self) -> dict[str, ModelStamp]:
        served = {name: item.source.stamp.directory for name, item in self._served.items()}
        found, duplicates = await self._attempts.in_thread(lambda: self.roots.stamps(served))
        for name in duplicates:
            self._lifecycle.fail_model(name, DUPLICATE)
        # A model that failed and was taken away is nobody's fault any more.
        for name in self._lifecycle.names() - found.keys() - set(duplicates):
            self._lifecycle.forget(name)
        return found

    async def poll_load(self, name: str) -> ModelStamp | None:
        try:
            await self.load(name)
        except ServingError as error:
            logger.warning("poll: %s", error.message)
            return None
        return self.served_stamp(name)

    async def poll_unload(self, name: str) -> None:
        await self.unload(name)

    def served_stamp(self, name: str) -> ModelStamp | None:
        served = self._served.get(name)
        return None if served is None else served.source.stamp

    def served_stamps(self) -> dict[str, ModelStamp]:
        return {name: item.source.stamp for name, item in self._served.items()}

    # Loading

    async def _load(self, name: str, request: LoadRequest, *, anew: bool = False) -> None:
        """`anew`: all versions, even if nothing of the model itself has changed."""
        async with self._locks.held(name):
            try:
                source = await self._attempts.in_thread(lambda: self._find(name, request))
            except ServingError as error:
                if error.message.startswith(DUPLICATE):
                    self._lifecycle.fail_model(name, DUPLICATE)
                raise
            sound = self._lifecycle.sound_versions(name)
            if not anew and is_current(self._served.get(name), source, sound):
                return
            try:
                leaving = await self._load_from(source, anew=anew)
            except BaseException:
                discard(source)
                self._parts.note_kept(name, self._served.get(name))
                raise
            if leaving:
                # REP-092: an update ends when surplus instances have finished their batches.
                await asyncio.wait(leaving, timeout=self._load_timeout_s)

    def _find(self, name: str, request: LoadRequest) -> Source:
        if request.files:
            directory = override.write_override(request.files)
            return Source(name, directory, stamp_model(directory), request, is_temporary=True)
        return self.roots.source(name, request)

    async def _fetch(self, source: Source) -> None:
        if source.remote is None:
            return
        name = source.name
        self._lifecycle.begin_fetch(name)
        try:
            await self._attempts.fetch(
                source.remote, lambda told: self._lifecycle.note_fetch(name, told)
            )
        finally:
            self._lifecycle.end_fetch(name)

    async def _load_from(self, source: Source, *, anew: bool) -> list[asyncio.Task[None]]:
        """Returns what goes on afterwards: instances of served versions that are surplus."""
        name = source.name
        try:
            await self._fetch(source)
            prepared = await self._bring_parts(await self._attempts.prepare(source))
        except ServingError as error:
            raise self._unprepared(name, error.message) from error
        except Exception as error:
            # Whatever a model's files provoke concerns that model, and never the server's start.
            logger.exception("preparing the load of model '%s' failed", name)
            raise self._unprepared(name, f"{type(error).__name__}: {error}") from error
        selected = tuple(sorted(prepared.versions))
        sound = self._lifecycle.sound_versions(name)
        before = None if anew else self._served.get(name)
        todo = plan(before, prepared, selected, sound, self._loader)
        self._lifecycle.begin_load(name, todo.fresh, prepared.backend)
        try:
            models, changes = await self._load_versions(prepared, todo)
        except BaseException:
            self._attempts.tell(prepared, Action.LOAD_FAIL)
            raise
        self._swap(prepared, selected, models)
        self._attempts.tell(prepared, Action.LOAD_COMPLETE)
        leaving = []
        for version, change in sorted(changes.items()):
            leaving.append(self._tasks.spawn(change.pending.commit(), "drain"))
            self._lifecycle.note_change(name, version)
        return leaving

    async def _bring_parts(self, prepared: PreparedModel) -> PreparedModel:
        try:
            await self._parts.bring(prepared.source.name, prepared.parts)
            return self._loader.join(prepared) if prepared.parts else prepared
        except BaseException:
            self._parts.note_waiting(prepared.source.name)
            self._attempts.tell(prepared, Action.LOAD_FAIL)
            raise

    def _unprepared(self, name: str, reason: str) -> ModelLoadError:
        self._lifecycle.fail_model(name, reason)
        return ModelLoadError(f"load failed for model '{name}': {reason}")

    async def _load_versions(
        self, prepared: PreparedModel, todo: LoadPlan
    ) -> tuple[dict[int, Model], dict[int, Change]]:
        """All or none: one version that fails takes the others of this load back."""
        source = prepared.source
        serving = {
            version: self._lifecycle.resolve(source.name, version) for version in todo.update
        }
        outcomes = await self._attempts.load(prepared, todo.fresh, serving)
        models: dict[int, Model] = {}
        changes: dict[int, Change] = {}
        reasons: dict[int, str] = {}
        for version, outcome in outcomes.items():
            if isinstance(outcome, BaseException):
                reasons[version] = reason_of(source.name, version, outcome)
            elif isinstance(outcome, Change):
                changes[version] = outcome
            else:
                models[version] = outcome
        if not reasons:
            return models, changes
        for model in models.values():
            self._attempts.undo(model)
        for change in changes.values():
            self._attempts.undo(change)
        culprits = " and ".join(str(version) for version in sorted(reasons))
        taken_back = dict.fromkeys(models, f"not served because version {culprits} failed to load")
        self._lifecycle.fail_load(source.name, {**taken_back, **reasons})
        told = "; ".join(
            f"version {version} is at UNAVAILABLE state: {reason}"
            for version, reason in sorted(reasons.items())
        )
        raise ModelLoadError(f"load failed for model '{source.name}': {told}")

    def _swap(
        self, prepared: PreparedModel, selected: tuple[int, ...], models: dict[int, Model]
    ) -> None:
        name = prepared.source.name
        before = self._served.get(name)
        replaced = self._lifecycle.finish_load(name, models)
        self._served[name] = Served(prepared, selected)
        self._reviews.note(name, is_loaded=True)
        self._parts.note_loaded(name)
        surplus = [
            entry.version
            for entry in self._lifecycle.entries(name)
            if entry.version is not None and entry.version not in selected
        ]
        leaving = self._departures.retire(name, surplus)
        old = superseded(
            before.source if before is not None else None,
            prepared.source,
            is_partly_kept=len(models) < len(selected),
        )
        leaving.append(self._departures.replace(replaced, old))
        if before is not None:
            self._departures.see_off(before, leaving)
        logger.info("model '%s' is ready: versions %s", name, list(selected))

    # Unloading

    async def _unload(self, name: str, version: int | None, *, with_parts: bool) -> None:
        names = [name]
        if version is None:
            for user in self._parts.users(name):
                await self._withdraw(user, f"{UNLOADED} with its part '{name}'")
            names = self._parts.leaving(name, with_parts=with_parts)
        for leaving in names:
            await self._unload_one(leaving, version)
        await self._reviews.run()

    async def _unload_one(self, name: str, version: int | None) -> None:
        async with self._locks.held(name):
            known = self._known_versions(name)
            if version is None:
                self._lifecycle.clear_failure(name)
            elif known and version not in known:
                raise InvalidArgumentError(
                    f"failed to unload version {version} of model '{name}': it has versions "
                    f"{', '.join(map(str, known))}"
                )
            self._departures.retire(name, known if version is None else [version])
            self._reviews.note(name)

    def _known_versions(self, name: str) -> list[int]:
        entries = self._lifecycle.entries(name)
        return [entry.version for entry in entries if entry.version is not None]

    # Ensembles

    def serves(self, name: str) -> bool:
        """Is there a ready version, here or, of a model that is not here, in a neighbour?"""
        if self._lifecycle.is_known(name) or not self._neighbours:
            return bool(self._lifecycle.ready_versions(name))
        return any(item._lifecycle.ready_versions(name) for item in self._neighbours)

    async def _load_part(self, name: str) -> None:
        everyone = (self, *self._neighbours)
        owners = [item for item in everyone if self._neighbours and await item.has(name)]
        owner = owners[0] if owners else self
        if owner is self or not owner.serves(name):
            await owner._load(name, LoadRequest())

    async def _withdraw(self, name: str, reason: str) -> None:
        """Out of service until its parts fit again."""
        self._parts.note_waiting(name)
        async with self._locks.held(name):
            if ready := self._lifecycle.ready_versions(name):
                self._departures.retire(name, ready, reason)
                self._reviews.note(name)
