"""Reads telemetry: the rates of this moment, and series for charts."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from console.core.workers import get_client
from console.monitoring.aggregate import ModelSum, percentiles
from console.monitoring.models import MinuteSample
from console.monitoring.series import build_series
from workers.messages import Event, ModelSample, Sample

logger = logging.getLogger(__name__)

# Range of a chart in seconds -> width of a step. Up to the first bound the stream answers alone.
STEPS = {300: 2, 900: 5, 3600: 60, 86_400: 600}
STREAM_REACH_S = 900
NOW_S = 10.0
LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class ModelRates:
    """What a model (or one version of it) does now, over the last seconds and all workers."""

    requests_per_s: float = 0.0
    inferences_per_s: float = 0.0
    errors_per_s: float = 0.0
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    queued: int = 0
    mean_batch: float | None = None
    sequence_slots: int = 0
    """Sequences that can be served at a time; 0 where there are none."""
    active_sequences: int = 0
    backlog_sequences: int = 0

    @property
    def error_share(self) -> float | None:
        return self.errors_per_s / self.requests_per_s if self.requests_per_s else None


@dataclass(slots=True)
class _Gathered:
    total: ModelSum = field(default_factory=ModelSum)
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Worker -> requests, inferences, failures."""
    newest: dict[tuple[str, str, str], ModelSample] = field(default_factory=dict)
    """(worker, model, version) -> its last row, for what is counted now."""

    def now(self, field_name: str) -> int:
        return sum(getattr(row, field_name) for row in self.newest.values())


def samples(*, since: float) -> list[Sample]:
    """The stream's samples; none while Redis is away, so that pages still render."""
    try:
        found: list[Sample] = get_client().samples(since=since)
        return found
    except Exception as error:
        logger.warning("telemetry cannot be read: %s", error)
        return []


def latest_rates(
    recent: Iterable[Sample] | None = None,
) -> dict[tuple[str, str] | str, ModelRates]:
    """Rates by (model, version), by model, and under "" for everything together."""
    if recent is None:
        recent = samples(since=time.time() - NOW_S)
    gathered: dict[tuple[str, str] | str, _Gathered] = {"": _Gathered()}
    seconds: dict[str, float] = {}
    for sample in recent:
        worker = sample.worker_id
        seconds[worker] = seconds.get(worker, 0.0) + sample.interval_s
        for row in sample.models:
            for key in ((row.name, row.version), row.name, ""):
                part = gathered.setdefault(key, _Gathered())
                part.total.add(row)
                done, inferred, failed = part.counts.get(worker, (0, 0, 0))
                part.counts[worker] = (
                    done + row.success_count + row.failure_count,
                    inferred + row.inference_count,
                    failed + row.failure_count,
                )
                part.newest[worker, row.name, row.version] = row
    return {key: _rates(part, seconds) for key, part in gathered.items()}


def _rates(part: _Gathered, seconds: dict[str, float]) -> ModelRates:
    def rate(index: int) -> float:
        return sum(counts[index] / (seconds[name] or 1.0) for name, counts in part.counts.items())

    p50, p95, p99 = percentiles(part.total.latency)
    return ModelRates(
        requests_per_s=rate(0),
        inferences_per_s=rate(1),
        errors_per_s=rate(2),
        p50_us=p50,
        p95_us=p95,
        p99_us=p99,
        queued=part.now("queued"),
        mean_batch=part.total.mean_batch,
        sequence_slots=part.now("sequence_slots"),
        active_sequences=part.now("active_sequences"),
        backlog_sequences=part.now("backlog_sequences"),
    )


def has_sequences(model: str = "") -> bool:
    """Does the model, or any, serve sequences now?"""
    rates = latest_rates().get(model)
    return rates is not None and rates.sequence_slots > 0


def series(
    model: str | None = None,
    worker: str | None = None,
    seconds: int = 300,
    *,
    now: float | None = None,
) -> dict[str, Any]:
    """Chart series over the last `seconds` (a key of STEPS); see `build_series`."""
    now = time.time() if now is None else now
    step = STEPS[seconds]
    # A step that still runs, or whose last samples are on their way, would show as a dip.
    end = now - step - LATE_S
    start = end - seconds
    body = build_series(
        _samples_over(start, seconds),
        step_s=step,
        start=start,
        end=end,
        model=model,
        worker=worker,
    )
    body["now"] = now
    body["events"] = _marks(start, model)
    return body


def _mark(event: Event) -> str:
    """An unload that somebody asked for is no failure, though its state is the same."""
    return "UNLOADED" if event.reason == "unloaded" else event.state


def _marks(start: float, model: str | None) -> list[dict[str, Any]]:
    """Changes of what serves, to be drawn on the axis of the latency."""
    try:
        events = get_client().events(since=start)
    except Exception:
        return []
    return [
        {"at": event.at, "model": event.model, "version": event.version, "state": _mark(event)}
        for event in events
        if event.kind == "model_state"
        and event.state in ("READY", "UNAVAILABLE")
        and model in (None, event.model)
    ]


def _samples_over(start: float, seconds: int) -> list[Sample]:
    if seconds <= STREAM_REACH_S:
        return samples(since=start)
    rows = MinuteSample.objects.filter(minute__gte=datetime.fromtimestamp(start, UTC))
    stored = [
        msgspec.convert(sample, Sample)
        for sample in rows.order_by("minute").values_list("sample", flat=True).iterator()
    ]
    # The stream has what came after the last whole minute of each worker.
    newest: dict[str, float] = {}
    for sample in stored:
        newest[sample.worker_id] = max(newest.get(sample.worker_id, 0.0), sample.at)
    tail_from = max(min(newest.values(), default=start), start)
    tail = [
        sample
        for sample in samples(since=tail_from)
        if sample.at > newest.get(sample.worker_id, 0.0)
    ]
    return stored + tail
