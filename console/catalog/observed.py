"""What the workers say about models, joined into one state a version and one a model.

Pure functions over `WorkerInfo`s; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from console.core.choices import (
    LOADING,
    LOST,
    NOT_SERVED,
    READY,
    UNAVAILABLE,
    UNLOADING,
    WARNING,
    model_state,
)
from workers.messages import ModelVersionState, WorkerInfo

# What Triton writes as the reason of a version that was unloaded on request: no fault.
UNLOADED_REASONS = frozenset({"", "unloaded"})
# The state that tells most about a model whose versions or workers differ, first wins.
PRECEDENCE = (UNAVAILABLE, LOADING, UNLOADING, LOST, WARNING, READY, NOT_SERVED)


@dataclass(frozen=True, slots=True)
class Placement:
    """One model version on one worker."""

    worker_id: str
    version: str
    state: str
    reason: str
    backend: str
    instances: int

    @property
    def is_serving(self) -> bool:
        return self.state == READY


@dataclass(slots=True)
class Observed:
    """One model on all workers."""

    placements: list[Placement] = field(default_factory=list)

    @property
    def state(self) -> str:
        return worst(placement.state for placement in self.placements)

    @property
    def backend(self) -> str:
        return next((item.backend for item in self.placements if item.backend), "")

    @property
    def worker_ids(self) -> list[str]:
        """Workers that serve it or try to."""
        return sorted({item.worker_id for item in self.placements if item.state != NOT_SERVED})

    @property
    def served_versions(self) -> list[str]:
        return sorted({item.version for item in self.placements if item.is_serving}, key=_number)

    @property
    def failed_versions(self) -> list[str]:
        failed = {item.version for item in self.placements if item.state == UNAVAILABLE}
        return sorted(failed - {""}, key=_number)

    @property
    def instances(self) -> list[tuple[str, int]]:
        """(worker, running instances of all its versions)."""
        counts: dict[str, int] = {}
        for item in self.placements:
            if item.is_serving:
                counts[item.worker_id] = counts.get(item.worker_id, 0) + item.instances
        return sorted(counts.items())

    @property
    def reasons(self) -> list[str]:
        """Notes for the line under a row: `v3 on gpu-1: ...`."""
        return self._written("v")

    @property
    def sentences(self) -> list[str]:
        """The same spelled out, for the line under a title: `Version 3 on gpu-1: ...`."""
        return self._written("Version ")

    def _written(self, word: str) -> list[str]:
        bad = [item for item in self.placements if _is_bad(item)]
        return list(dict.fromkeys(_sentence(item, word) for item in bad))

    def of_version(self, version: str) -> Observed:
        return Observed([item for item in self.placements if item.version == version])


def observe(workers: Iterable[WorkerInfo]) -> dict[str, Observed]:
    """Model name -> what every worker reports about it."""
    models: dict[str, Observed] = {}
    for worker in workers:
        for row in worker.models:
            placement = _placement(worker, row)
            models.setdefault(row.name, Observed()).placements.append(placement)
    return models


def worst(states: Iterable[str]) -> str:
    present = set(states)
    return next((state for state in PRECEDENCE if state in present), NOT_SERVED)


def _placement(worker: WorkerInfo, row: ModelVersionState) -> Placement:
    state = model_state(row.state)
    reason = row.reason
    if state == UNAVAILABLE and reason in UNLOADED_REASONS:
        state, reason = NOT_SERVED, ""
    elif worker.state == LOST and state != NOT_SERVED:
        state, reason = LOST, "the worker's heartbeat expired"
    elif worker.is_gone:
        state, reason = NOT_SERVED, ""
    return Placement(worker.worker_id, row.version, state, reason, row.backend, row.instances)


def _is_bad(item: Placement) -> bool:
    return item.state in (UNAVAILABLE, LOST) and bool(item.reason)


def _sentence(item: Placement, word: str) -> str:
    version = f"{word}{item.version} on " if item.version else ""
    return f"{version}{item.worker_id}: {item.reason}"


def _number(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdigit() else (0, version)
