"""What the reconciler should do, as plain functions of what is wanted and what workers report.

No clock, database or Redis here: `reconcile` gathers the input and carries the decisions out.
Rules: a lost worker gets nothing; a restarted one gets back what was wanted; a load that a worker
refused is not repeated on the same worker process; what restarts again and again waits longer each
time; what a client loaded or unloaded through a worker's own API is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.messages import ModelVersionState, WorkerInfo

READY = "READY"
MOVING = frozenset({"LOADING", "UNLOADING"})
UNLOADED_REASON = "unloaded"
FIRST_DELAY_S = 3.0
MAX_DELAY_S = 600.0
ATTEMPT_WINDOW_S = 900.0
SETTLE_S = 6.0
"""A result may arrive before the heartbeat that shows it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A desired row; times are seconds since the epoch."""

    model: str
    worker_id: str
    """Empty: every worker."""
    is_loaded: bool
    versions: tuple[int, ...] | None
    changed_at: float
    answered: frozenset[str] | None = None
    """Workers that carried out, or refused, the deployment behind this row; None: there is none."""


@dataclass(frozen=True, slots=True)
class LastLoad:
    """The newest operation for a model on a worker."""

    sent_at: float
    is_open: bool
    is_refused: bool
    """The worker answered with an error."""
    finished_at: float | None


@dataclass(slots=True)
class Past:
    """What was tried: (worker, model) -> newest operation, and times of the reconciler's loads."""

    last: dict[tuple[str, str], LastLoad] = field(default_factory=dict)
    attempts: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    open_models: frozenset[str] = frozenset()
    """Models with a deployment that still waits or runs."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation to start."""

    is_load: bool
    model: str
    worker_id: str
    versions: tuple[int, ...] | None
    reason: str


def delay_s(attempts: int) -> float:
    """How long to wait after that many recent attempts by the reconciler."""
    if attempts <= 0:
        return 0.0
    return float(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (attempts - 1)))


def decide(
    wanted: Sequence[Wanted], workers: Sequence[WorkerInfo], past: Past, *, now: float
) -> list[Step]:
    """The operations that bring what is observed closer to what is wanted."""
    steps = []
    for worker in workers:
        if worker.state != "ready":
            continue
        for wish in _wishes_for(wanted, worker.worker_id):
            step = decide_one(wish, worker, past, now=now)
            if step is not None:
                steps.append(step)
    return steps


def _wishes_for(wanted: Sequence[Wanted], worker_id: str) -> list[Wanted]:
    chosen: dict[str, Wanted] = {}
    for wish in wanted:
        if wish.worker_id == worker_id or (not wish.worker_id and wish.model not in chosen):
            chosen[wish.model] = wish
    return list(chosen.values())


def decide_one(wish: Wanted, worker: WorkerInfo, past: Past, *, now: float) -> Step | None:
    """The step for one model on one worker, or None when there is nothing to do now."""
    rows = [row for row in worker.models if row.name == wish.model]
    key = (worker.worker_id, wish.model)
    last = past.last.get(key)
    if wish.model in past.open_models or _is_busy(rows, last, now):
        return None
    ready = {int(row.version) for row in rows if row.state == READY and row.version.isdigit()}
    missed = (
        wish.answered is not None
        and worker.worker_id not in wish.answered
        and worker.started_at < wish.changed_at
    )
    if not wish.is_loaded:
        if ready and missed:
            return _step(wish, worker, "It was away when this was unloaded")
        return None
    reason = _load_reason(wish, worker, rows, ready, missed)
    if not reason:
        return None
    if last and last.is_refused and last.sent_at > worker.started_at and not missed:
        return None
    recent = [at for at in past.attempts.get(key, ()) if now - at < ATTEMPT_WINDOW_S]
    if recent and now - max(recent) < delay_s(len(recent)):
        return None
    return _step(wish, worker, reason)


def _is_busy(rows: Sequence[ModelVersionState], last: LastLoad | None, now: float) -> bool:
    if any(row.state in MOVING for row in rows):
        return True
    if last is None:
        return False
    return last.is_open or (last.finished_at is not None and now - last.finished_at < SETTLE_S)


def _load_reason(
    wish: Wanted,
    worker: WorkerInfo,
    rows: Sequence[ModelVersionState],
    ready: set[int],
    missed: bool,
) -> str:
    """Why a wanted model must be loaded, or empty."""
    if ready and missed:
        return "The worker was away when this was deployed"
    if ready and (wish.versions is None or set(wish.versions) <= ready):
        return ""
    if ready:
        return "Not all wanted versions are served"
    if any(row.reason.startswith(UNLOADED_REASON) for row in rows):
        return ""
    if not rows or all(not row.state for row in rows):
        if worker.started_at > wish.changed_at:
            return "The worker started"
        return "First start" if wish.answered is None else "Wanted and not loaded"
    return "Wanted and not ready"


def _step(wish: Wanted, worker: WorkerInfo, reason: str) -> Step:
    return Step(wish.is_loaded, wish.model, worker.worker_id, wish.versions, reason)


def group(steps: Sequence[Step]) -> Mapping[tuple[bool, str, tuple[int, ...] | None], list[Step]]:
    """Steps that one deployment can carry: the same deed for the same model."""
    grouped: dict[tuple[bool, str, tuple[int, ...] | None], list[Step]] = {}
    for step in steps:
        grouped.setdefault((step.is_load, step.model, step.versions), []).append(step)
    return grouped
