"""What the first screen says: is anything wrong, five numbers, the busiest models, the devices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from console.catalog.observed import Observed, Placement, observe
from console.core import workers as door
from console.core.choices import LOST, UNAVAILABLE, UNKNOWN
from console.deployments import selectors as deployments
from console.fleet.selectors import WorkerRow, worker_rows
from console.monitoring import selectors
from console.monitoring.aggregate import ModelSum
from console.monitoring.selectors import ModelRates
from workers.messages import Event, Sample, WorkerInfo

FAILURES_OVER_S = 300.0
EVENTS_OVER_S = 24 * 3600.0
BUSIEST = 6
# Failed requests in five minutes that are worth a line, as a share of all.
FAILURE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of "Needs attention"."""

    state: str
    word: str
    subject: str
    text: str
    url: str
    at: Any = None
    """When it began or was seen: seconds since the epoch, a datetime, or None."""


@dataclass(frozen=True, slots=True)
class BusyModel:
    name: str
    version: str
    rates: ModelRates


@dataclass(frozen=True, slots=True)
class Overview:
    problems: list[Problem]
    totals: ModelRates | None
    """None: no telemetry arrives."""
    ready: int
    known: int
    busiest: list[BusyModel]
    workers: list[WorkerRow]
    registry_error: str

    @property
    def has_gpus(self) -> bool:
        return any(row.devices for row in self.workers)


def read_overview() -> Overview:
    now = time.time()
    infos, registry_error = door.known()
    recent = selectors.samples(since=now - FAILURES_OVER_S)
    fresh = [sample for sample in recent if now - sample.at <= selectors.NOW_S]
    rates = selectors.latest_rates(fresh)
    rows = worker_rows(infos=infos, samples=fresh)
    models = observe(infos)
    asked_for = {name for name, seen in models.items() if seen.worker_ids}
    wanted = deployments.wanted_models()
    return Overview(
        problems=find_problems(infos, rows, models, recent, wanted, registry_error),
        totals=rates[""] if fresh else None,
        ready=sum(1 for seen in models.values() if seen.served_versions),
        known=len(asked_for | wanted),
        busiest=_busiest(models, rates),
        workers=rows,
        registry_error=registry_error,
    )


def find_problems(
    infos: list[WorkerInfo],
    rows: list[WorkerRow],
    models: dict[str, Observed],
    recent: list[Sample],
    wanted: set[str],
    registry_error: str,
) -> list[Problem]:
    """Worst first: what cannot be seen, what does not serve, what failed."""
    if registry_error:
        return [Problem("failed", "No contact", "Redis", registry_error, reverse("fleet:workers"))]
    events = _events()
    # A failure that the model's own state tells already is not told twice.
    unavailable = {name for name, seen in models.items() if _unavailable(seen)}
    failures = _failed_deployments(unavailable)
    told, failed = set(failures), failures.values()
    return [
        *_worker_problems(rows),
        *_model_problems(models, events),
        *_missing(models, wanted - told, infos),
        *failed,
        *_failing_requests(recent),
    ]


def _worker_problems(rows: list[WorkerRow]) -> Iterable[Problem]:
    for row in rows:
        if row.state in (LOST, UNKNOWN):
            count = len({model.name for model in row.served})
            served = f"; it served {count} model{'' if count == 1 else 's'}" if count else ""
            url = reverse("fleet:worker", args=[row.info.worker_id])
            text = f"{row.reason}{served}"
            yield Problem(row.state, "", row.info.worker_id, text, url, row.info.last_seen)


def _model_problems(
    models: dict[str, Observed], events: dict[tuple[str, str, str], Event]
) -> Iterable[Problem]:
    for name, seen in sorted(models.items()):
        for place in _unavailable(seen):
            event = events.get((place.worker_id, name, place.version))
            subject = f"{name} v{place.version}" if place.version else name
            text = f"on {place.worker_id} — {place.reason or 'no reason given'}"
            at = event.at if event else None
            yield Problem(UNAVAILABLE, "", subject, text, reverse("catalog:model", args=[name]), at)


def _unavailable(seen: Observed) -> list[Placement]:
    return [place for place in seen.placements if place.state == UNAVAILABLE]


def _missing(
    models: dict[str, Observed], wanted: set[str], infos: list[WorkerInfo]
) -> Iterable[Problem]:
    """Should serve, and no worker serves, loads or fails it."""
    connected = any(not info.is_gone for info in infos)
    for name in sorted(wanted):
        if name in models and models[name].worker_ids:
            continue
        text = f"should serve; {'no worker has it' if connected else 'no worker is connected'}"
        yield Problem("warning", "Not served", name, text, reverse("catalog:model", args=[name]))


def _failed_deployments(explained: set[str]) -> dict[str, Problem]:
    """By model, only where the failure is the last word on it and nothing else explains it."""
    found: dict[str, Problem] = {}
    seen = set(explained)
    for deployment in deployments.deployments_for(limit=50):
        if deployment.model in seen:
            continue
        seen.add(deployment.model)
        if deployment.has_failed:
            subject = f"{deployment.what} of {deployment.model}"
            text = deployment.error.strip().partition("\n")[0] or "no reason given"
            url = deployment.get_absolute_url()
            at = deployment.finished_at
            found[deployment.model] = Problem(deployment.state, "", subject, text, url, at)
    return found


def _failing_requests(recent: list[Sample]) -> Iterable[Problem]:
    sums: dict[str, ModelSum] = {}
    seen_at: dict[str, float] = {}
    for sample in recent:
        for row in sample.models:
            sums.setdefault(row.name, ModelSum()).add(row)
            if row.failure_count:
                seen_at[row.name] = max(seen_at.get(row.name, 0.0), sample.at)
    for name, total in sorted(sums.items()):
        if total.failure and total.failure / total.requests >= FAILURE_SHARE:
            url = reverse("catalog:statistics", args=[name])
            yield Problem("warning", "Failing", name, _failing_words(total), url, seen_at[name])


def _failing_words(total: ModelSum) -> str:
    failed = total.failure - total.rejected
    words = []
    if total.rejected:
        words.append(f"the queue rejected {total.rejected:,}")
    if failed:
        words.append(f"failed {failed:,}")
    return f"{', '.join(words)} of {total.requests:,} requests in 5 min"


def _events() -> dict[tuple[str, str, str], Event]:
    """(worker, model, version) -> its last change of state."""
    try:
        found = door.get_client().events(since=time.time() - EVENTS_OVER_S, limit=2000)
    except Exception:
        # Ages are an extra; the problems themselves come from the registry.
        return {}
    return {
        (event.worker_id, event.model, event.version): event
        for event in sorted(found, key=lambda event: event.at)
        if event.kind == "model_state"
    }


def _busiest(
    models: dict[str, Observed], rates: dict[tuple[str, str] | str, ModelRates]
) -> list[BusyModel]:
    found = []
    for name, seen in models.items():
        for version in seen.served_versions:
            found.append(BusyModel(name, version, rates.get((name, version), ModelRates())))
    found.sort(key=lambda item: (-item.rates.inferences_per_s, item.name))
    return found[:BUSIEST]
