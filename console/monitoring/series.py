"""Chart series from samples: time steps on one axis, one list of numbers a line.

`None` stands for "no sample or nothing to say" and draws a gap; 0 is a measured zero. The same
sums are made in `static/js/metrics.js` for what arrives over the live socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.monitoring.aggregate import ModelSum, percentiles
from workers.messages import ModelSample, Sample

Line = list[float | None]


@dataclass(slots=True)
class _Step:
    """All samples that fall into one step of time."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Worker -> seconds of telemetry."""
    models: dict[str, dict[str, ModelSum]] = field(default_factory=dict)
    """Model -> worker -> sums."""
    newest: dict[tuple[str, str, str], ModelSample] = field(default_factory=dict)
    """(worker, model, version) -> its last row in the step: what waits, which slots are in use."""
    last: dict[str, Sample] = field(default_factory=dict)

    def add(self, sample: Sample, model: str | None) -> None:
        worker = sample.worker_id
        self.seconds[worker] = self.seconds.get(worker, 0.0) + sample.interval_s
        self.last[worker] = sample
        for row in sample.models:
            if model and row.name != model:
                continue
            workers = self.models.setdefault(row.name, {})
            workers.setdefault(worker, ModelSum()).add(row)
            self.newest[worker, row.name, row.version] = row

    def rate(self, model: str, count: Callable[[ModelSum], float]) -> float:
        """Per second, over all workers."""
        return sum(
            count(total) / self.seconds[worker]
            for worker, total in self.models.get(model, {}).items()
            if self.seconds[worker] > 0
        )

    def total(self, model: str | None = None) -> ModelSum:
        """Counts of one model or of all, over all workers."""
        whole = ModelSum()
        for name, workers in self.models.items():
            if model is not None and name != model:
                continue
            for part in workers.values():
                whole.success += part.success
                whole.failure += part.failure
                whole.inferences += part.inferences
                whole.executions += part.executions
                whole.queue_us += part.queue_us
                whole.latency.update(part.latency)
                whole.batches.update(part.batches)
                whole.close_reasons.update(part.close_reasons)
        return whole

    def now(self, field_name: str, model: str | None = None) -> int:
        """A gauge of one model or of all, over all workers and versions."""
        return sum(
            getattr(row, field_name)
            for (_, name, _), row in self.newest.items()
            if model in (None, name)
        )


def build_series(
    samples: Iterable[Sample],
    *,
    step_s: int,
    start: float,
    end: float,
    model: str | None = None,
    worker: str | None = None,
) -> dict[str, Any]:
    """The JSON body of `GET /api/v1/metrics/series`."""
    first = int(start // step_s) * step_s
    steps = [_Step() for _ in range(first, int(end // step_s) * step_s + 1, step_s)]
    for sample in samples:
        if worker and sample.worker_id != worker:
            continue
        index = int((sample.at - first) // step_s)
        if 0 <= index < len(steps):
            steps[index].add(sample, model)
    names = sorted({name for step in steps for name in step.models})
    workers = sorted({name for step in steps for name in step.seconds})
    return {
        "step_s": step_s,
        "times": [first + index * step_s for index in range(len(steps))],
        "totals": _totals(steps),
        "models": {name: _model_lines(steps, name) for name in names},
        "batch_sizes": _counted(steps, lambda total: total.batches),
        "close_reasons": _counted(steps, lambda total: total.close_reasons),
        "workers": {name: _worker_lines(steps, name) for name in workers},
        "devices": _devices(steps),
    }


def _line(steps: list[_Step], value: Callable[[_Step], float | None]) -> Line:
    """One number a step; a step without any sample is a gap."""
    return [_short(value(step)) if step.seconds else None for step in steps]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _totals(steps: list[_Step]) -> dict[str, Line]:
    latency = [percentiles(step.total().latency) for step in steps]
    return {
        "requests_per_s": _line(steps, lambda s: _sum_rate(s, lambda total: total.requests)),
        "inferences_per_s": _line(steps, lambda s: _sum_rate(s, lambda total: total.inferences)),
        "errors_per_s": _line(steps, lambda s: _sum_rate(s, lambda total: total.failure)),
        "queued": _line(steps, lambda s: s.now("queued")),
        "sequence_slots": _line(steps, lambda s: s.now("sequence_slots")),
        "active_sequences": _line(steps, lambda s: s.now("active_sequences")),
        "backlog_sequences": _line(steps, lambda s: s.now("backlog_sequences")),
        "queue_us": _line(steps, lambda s: s.total().mean_queue_us),
        "mean_batch": _line(steps, lambda s: s.total().mean_batch),
        "p50_us": [_short(values[0]) for values in latency],
        "p95_us": [_short(values[1]) for values in latency],
        "p99_us": [_short(values[2]) for values in latency],
    }


def _sum_rate(step: _Step, count: Callable[[ModelSum], float]) -> float:
    return sum(step.rate(name, count) for name in step.models)


def _model_lines(steps: list[_Step], name: str) -> dict[str, Line]:
    return {
        "inferences_per_s": _line(steps, lambda s: s.rate(name, lambda total: total.inferences)),
        "errors_per_s": _line(steps, lambda s: s.rate(name, lambda total: total.failure)),
        "queued": _line(steps, lambda s: s.now("queued", name)),
        "queue_us": _line(steps, lambda s: s.total(name).mean_queue_us),
        "mean_batch": _line(steps, lambda s: s.total(name).mean_batch),
        "p99_us": _line(steps, lambda s: percentiles(s.total(name).latency)[2]),
    }


def _counted(
    steps: list[_Step], counter: Callable[[ModelSum], Mapping[Any, int]]
) -> dict[str, Line]:
    """Batch size, or why a batch closed -> executions a second."""
    totals = [counter(step.total()) for step in steps]
    keys = sorted({key for counts in totals for key in counts})
    return {
        str(key): [
            _short(counts.get(key, 0) / max(step.seconds.values())) if step.seconds else None
            for step, counts in zip(steps, totals, strict=True)
        ]
        for key in keys
    }


def _worker_lines(steps: list[_Step], name: str) -> dict[str, Line]:
    def of(step: _Step, field_name: str) -> float | None:
        sample = step.last.get(name)
        return None if sample is None else float(getattr(sample, field_name))

    return {
        "cpu_percent": [_short(of(step, "cpu_percent")) for step in steps],
        "memory_bytes": [of(step, "memory_bytes") for step in steps],
    }


def _devices(steps: list[_Step]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for index, step in enumerate(steps):
        for worker, sample in step.last.items():
            for device in sample.devices:
                lines = found.setdefault(
                    f"{worker} gpu-{device.index}",
                    {
                        "name": device.name,
                        "utilization": [None] * len(steps),
                        "memory_used_bytes": [None] * len(steps),
                        "power_watts": [None] * len(steps),
                    },
                )
                lines["utilization"][index] = device.utilization
                lines["memory_used_bytes"][index] = device.memory_used_bytes
                lines["power_watts"][index] = device.power_watts
    return dict(sorted(found.items()))
