"""Backends as the workers report them: what is installed, what is missing, which models use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.core.choices import NOT_SERVED, READY, UNAVAILABLE, WARNING
from workers.messages import BackendState, WorkerInfo


@dataclass(frozen=True, slots=True)
class BackendRow:
    """One backend on one worker."""

    backend: BackendState
    models: list[str]
    """Names of those on this worker whose backend it is: loaded ones, and those that failed."""

    @property
    def is_missing(self) -> bool:
        """Its runtime is not installed."""
        return self.backend.is_missing

    @property
    def state(self) -> str:
        if self.is_missing:
            return UNAVAILABLE if self.models else NOT_SERVED
        return WARNING if self.backend.problem else READY

    @property
    def word(self) -> str:
        if self.is_missing:
            return "Not installed"
        if self.backend.problem:
            return "Conflict"
        return "Installed" if self.backend.package else "Ready"


@dataclass(frozen=True, slots=True)
class WorkerBackends:
    info: WorkerInfo
    rows: list[BackendRow]

    @property
    def installed_count(self) -> int:
        return sum(not row.is_missing for row in self.rows)


def worker_backends(
    infos: Iterable[WorkerInfo], *, worker: str = "", only_used: bool = False
) -> list[WorkerBackends]:
    """Of the workers that are there, by name; used backends first, missing ones last."""
    found = []
    for info in sorted(infos, key=lambda item: item.worker_id):
        if info.is_gone or (worker and info.worker_id != worker):
            continue
        rows = [row for row in _rows(info) if row.models or not only_used]
        found.append(WorkerBackends(info, rows))
    return found


def _rows(info: WorkerInfo) -> list[BackendRow]:
    users: dict[str, set[str]] = {}
    for model in info.models:
        if model.is_idle:
            continue
        users.setdefault(model.backend, set()).add(model.name)
    rows = [BackendRow(item, sorted(users.get(item.name, ()))) for item in info.backends]
    return sorted(rows, key=lambda row: (not row.models, row.is_missing, row.backend.name))
