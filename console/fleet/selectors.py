"""Workers as pages show them: registry entry, age of what we know, load of this moment."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from console.core import workers as door
from console.core.choices import (
    LOST,
    NOT_SERVED,
    READY,
    STOPPED,
    UNAVAILABLE,
    UNKNOWN,
    model_state,
)
from console.core.workers import get_client
from console.monitoring import selectors as monitoring
from workers.messages import DeviceSample, Event, ModelVersionState, Sample, WorkerInfo

# What was not heard of for this long is unknown, never green.
TRUSTED_S = 10.0
GOOD_STATES = frozenset({READY, STOPPED})


@dataclass(frozen=True, slots=True)
class WorkerRow:
    info: WorkerInfo
    state: str
    reason: str
    sample: Sample | None
    """Its newest telemetry, unless too old to be trusted."""

    @property
    def served(self) -> list[ModelVersionState]:
        return [model for model in self.info.models if model.state == "READY"]

    @property
    def failed(self) -> list[ModelVersionState]:
        """Versions that should serve and do not; what was unloaded on request is not among them."""
        return [
            model
            for model in self.info.models
            if model.state == "UNAVAILABLE" and model.reason not in ("", "unloaded")
        ]

    @property
    def queued(self) -> int | None:
        if self.sample is None:
            return None
        return sum(model.queued for model in self.sample.models)

    @property
    def devices(self) -> list[DeviceSample]:
        """GPUs, by the newest telemetry, else by the registry."""
        return self.sample.devices if self.sample else self.info.devices

    @property
    def alone(self) -> list[WorkerRow]:
        """Itself as the rows of a table."""
        return [self]

    @property
    def has_problem(self) -> bool:
        return self.state not in GOOD_STATES or bool(self.failed)


@dataclass(frozen=True, slots=True)
class ModelOnWorker:
    """One model version on one worker with its load of this moment."""

    row: ModelVersionState
    state: str
    rates: monitoring.ModelRates | None


def worker_rows(
    *,
    infos: Iterable[WorkerInfo] | None = None,
    samples: Iterable[Sample] | None = None,
    search: str = "",
    only_problems: bool = False,
) -> list[WorkerRow]:
    """Sorted by name; the filters are those of the page."""
    now = time.time()
    if infos is None:
        infos, _ = door.known()
    if samples is None:
        samples = monitoring.samples(since=now - TRUSTED_S)
    newest = {sample.worker_id: sample for sample in samples if now - sample.at <= TRUSTED_S}
    rows = [_row(info, newest.get(info.worker_id), now) for info in infos]
    words = search.lower().split()
    return sorted(
        (
            row
            for row in rows
            if all(word in _searchable(row.info) for word in words)
            and (row.has_problem or not only_problems)
        ),
        key=lambda row: row.info.worker_id,
    )


def worker_row(worker_id: str) -> WorkerRow | None:
    info = get_client().worker(worker_id)
    if info is None:
        return None
    return worker_rows(infos=[info])[0]


def models_of(row: WorkerRow) -> list[ModelOnWorker]:
    """Versions by name, those never asked for last."""
    recent = [
        sample
        for sample in monitoring.samples(since=time.time() - monitoring.NOW_S)
        if sample.worker_id == row.info.worker_id
    ]
    rates = monitoring.latest_rates(recent)
    found = [
        ModelOnWorker(
            model, _state(row, model), rates.get((model.name, model.version)) if recent else None
        )
        for model in row.info.models
    ]
    return sorted(
        found, key=lambda item: (item.state == NOT_SERVED, item.row.name, item.row.version)
    )


def events_of(worker_id: str, *, hours: float = 24.0, limit: int = 50) -> list[Event]:
    """Newest first."""
    found = [
        event
        for event in get_client().events(since=time.time() - hours * 3600, limit=2000)
        if event.worker_id == worker_id
    ]
    return sorted(found, key=lambda event: event.at, reverse=True)[:limit]


def _row(info: WorkerInfo, sample: Sample | None, now: float) -> WorkerRow:
    if info.state == LOST:
        return WorkerRow(info, LOST, "heartbeat expired", None)
    if info.state == STOPPED:
        return WorkerRow(info, STOPPED, "ended in order", None)
    if now - info.last_seen > TRUSTED_S:
        return WorkerRow(info, UNKNOWN, "not heard of for some seconds", None)
    reason = ""
    if info.state == "draining" and sample is not None:
        left = sum(model.queued for model in sample.models)
        reason = f"{left} requests left" if left else ""
    return WorkerRow(info, info.state, reason, sample)


def _state(row: WorkerRow, model: ModelVersionState) -> str:
    state = model_state(model.state)
    if row.state == STOPPED or (state == UNAVAILABLE and model.reason in ("", "unloaded")):
        return NOT_SERVED
    if row.state in (LOST, UNKNOWN) and state != NOT_SERVED:
        return row.state
    return state


def _searchable(info: WorkerInfo) -> str:
    models = " ".join(model.name for model in info.models)
    return f"{info.worker_id} {info.host} {models}".lower()
