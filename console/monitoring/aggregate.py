"""Adds telemetry up: samples over time and workers, histograms, percentiles. Pure functions.

A rate is always counts over the seconds they were counted in, so that jitter of the 1 Hz samples
and sums over workers stay right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workers.messages import ModelSample, Sample

PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(slots=True)
class ModelSum:
    """What one or more model versions did, added up."""

    success: int = 0
    failure: int = 0
    rejected: int = 0
    inferences: int = 0
    executions: int = 0
    queue_us: float = 0.0
    """Mean queue time times successes, to be divided by `success`."""
    latency: Counter[float] = field(default_factory=Counter)
    batches: Counter[int] = field(default_factory=Counter)
    close_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, sample: ModelSample) -> None:
        self.success += sample.success_count
        self.failure += sample.failure_count
        self.rejected += sample.rejected_count
        self.inferences += sample.inference_count
        self.executions += sample.execution_count
        self.queue_us += sample.queue_us * sample.success_count
        for bound, count in sample.latency_buckets.items():
            self.latency[float(bound)] += count
        for size, count in sample.batch_sizes.items():
            self.batches[int(size)] += count
        self.close_reasons.update(sample.close_reasons)

    @property
    def requests(self) -> int:
        return self.success + self.failure

    @property
    def mean_batch(self) -> float | None:
        return self.inferences / self.executions if self.executions else None

    @property
    def mean_queue_us(self) -> float | None:
        return self.queue_us / self.success if self.success else None


def percentiles(
    buckets: Mapping[float, int], wanted: Iterable[float] = PERCENTILES
) -> list[float | None]:
    """Percentiles of a histogram {upper bound: count}, linear inside a bucket.

    A bucket without a lower neighbour in the histogram is taken to start at four fifths of its
    bound, the spacing of the workers' log scale, so that one full bucket is not read as its edge.
    """
    total = sum(buckets.values())
    if not total:
        return [None for _ in wanted]
    bounds = sorted(bound for bound, count in buckets.items() if count)
    return [_percentile(buckets, bounds, total * share / 100) for share in wanted]


def _percentile(buckets: Mapping[float, int], bounds: list[float], rank: float) -> float:
    passed = 0
    previous = 0.0
    for bound in bounds:
        count = buckets[bound]
        if passed + count >= rank:
            if bound == float("inf"):
                return previous
            low = max(previous, bound * 0.8)
            return low + (bound - low) * (rank - passed) / count
        passed += count
        previous = bound
    return previous


def merge_samples(samples: list[Sample]) -> Sample:
    """One worker's samples, oldest first, as one sample over their whole time."""
    last = samples[-1]
    seconds = sum(sample.interval_s for sample in samples)
    rows: dict[tuple[str, str], list[ModelSample]] = {}
    for sample in samples:
        for row in sample.models:
            rows.setdefault((row.name, row.version), []).append(row)
    return Sample(
        worker_id=last.worker_id,
        at=last.at,
        interval_s=seconds,
        cpu_percent=sum(sample.cpu_percent * sample.interval_s for sample in samples)
        / (seconds or 1.0),
        memory_bytes=max(sample.memory_bytes for sample in samples),
        models=[_merge_rows(part) for part in rows.values()],
        devices=last.devices,
    )


def _merge_rows(rows: list[ModelSample]) -> ModelSample:
    total = ModelSum()
    for row in rows:
        total.add(row)
    p50, p95, p99 = percentiles(total.latency)

    def mean(name: str) -> float:
        whole = sum(float(getattr(row, name)) * row.success_count for row in rows)
        return whole / (total.success or 1)

    return ModelSample(
        name=rows[-1].name,
        version=rows[-1].version,
        success_count=total.success,
        failure_count=total.failure,
        rejected_count=total.rejected,
        inference_count=total.inferences,
        execution_count=total.executions,
        queued=max(row.queued for row in rows),
        p50_us=p50 or 0.0,
        p95_us=p95 or 0.0,
        p99_us=p99 or 0.0,
        queue_us=mean("queue_us"),
        compute_input_us=mean("compute_input_us"),
        compute_infer_us=mean("compute_infer_us"),
        compute_output_us=mean("compute_output_us"),
        batch_sizes={str(size): count for size, count in sorted(total.batches.items())},
        close_reasons=dict(sorted(total.close_reasons.items())),
        latency_buckets={f"{bound:g}": count for bound, count in sorted(total.latency.items())},
        sequence_slots=rows[-1].sequence_slots,
        active_sequences=max(row.active_sequences for row in rows),
        backlog_sequences=max(row.backlog_sequences for row in rows),
    )
