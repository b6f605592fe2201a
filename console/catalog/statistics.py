"""What the statistics of a model say: outcomes, where the time goes, batches, response cache.

Reads the `model_stats` rows of Triton's statistics extension as a worker describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PHASES = [
    ("queue", "Waiting in the queue"),
    ("compute_input", "Preparing inputs"),
    ("compute_infer", "Running the model"),
    ("compute_output", "Preparing outputs"),
]
REASONS = {
    "full": "The batch was full",
    "preferred": "It had a preferred size",
    "delay": "Its oldest request had waited for the set delay",
    "shape": "The next request had another shape",
    "optional": "The next request had other optional inputs",
    "shape_tensor": "The next request had other values in a shape tensor",
    "custom": "The model's own strategy left the next request out",
    "queue_empty": "Nothing else waited, and an instance was free",
}


@dataclass(frozen=True, slots=True)
class Phase:
    key: str
    label: str
    mean_us: float
    share: float
    """Of all four phases together, 0 to 1."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    size: int
    executions: int
    share: float
    """Of the most frequent size, 0 to 1: the length of its bar."""
    infer_us: float | None
    """Mean time of one execution of this size."""


@dataclass(frozen=True, slots=True)
class CloseReason:
    """Why batches went as they were."""

    key: str
    label: str
    executions: int
    share: float
    """Of all counted executions, 0 to 1."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    hits: int
    misses: int
    hit_us: float | None
    """Mean time of a look-up that found its answer."""
    miss_us: float | None
    """Mean time of a look-up that did not, and of keeping the answer."""

    @property
    def share(self) -> float:
        """Of requests that were answered from the cache, 0 to 1."""
        return self.hits / (self.hits + self.misses) if self.hits else 0.0

    def __bool__(self) -> bool:
        """Was the cache ever asked?"""
        return self.hits + self.misses > 0


@dataclass(frozen=True, slots=True)
class VersionStatistics:
    """One version on one worker, or several of them added up."""

    worker_id: str
    version: str
    success: int
    failure: int
    inferences: int
    executions: int
    cache: CacheUse
    phases: list[Phase]
    batch_sizes: list[BatchSize]
    close_reasons: list[CloseReason]

    @property
    def mean_us(self) -> float | None:
        return sum(phase.mean_us for phase in self.phases) if self.success else None

    @property
    def mean_batch(self) -> float | None:
        return self.inferences / self.executions if self.executions else None


def of_worker(worker_id: str, statistics: Mapping[str, Any]) -> list[VersionStatistics]:
    """The versions of one `statistics` body."""
    return [_read(worker_id, str(row.get("version", "")), [row]) for row in _rows(statistics)]


def together(bodies: Iterable[Mapping[str, Any]]) -> VersionStatistics:
    """All versions on all workers as one."""
    return _read("", "", [row for body in bodies for row in _rows(body)])


def _rows(statistics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = statistics.get("model_stats", [])
    return rows if isinstance(rows, list) else []


def _read(worker_id: str, version: str, rows: list[Mapping[str, Any]]) -> VersionStatistics:
    success = _sum(rows, "success", "count")
    return VersionStatistics(
        worker_id=worker_id,
        version=version,
        success=success,
        failure=_sum(rows, "fail", "count"),
        inferences=sum(int(row.get("inference_count", 0)) for row in rows),
        executions=sum(int(row.get("execution_count", 0)) for row in rows),
        cache=_cache(rows),
        phases=_phases(rows),
        batch_sizes=_batch_sizes(rows),
        close_reasons=_close_reasons(rows),
    )


def _sum(rows: list[Mapping[str, Any]], part: str, key: str) -> int:
    return sum(int(row.get("inference_stats", {}).get(part, {}).get(key, 0)) for row in rows)


def _mean_us(rows: list[Mapping[str, Any]], part: str) -> float | None:
    count = _sum(rows, part, "count")
    return _sum(rows, part, "ns") / count / 1000 if count else None


def _cache(rows: list[Mapping[str, Any]]) -> CacheUse:
    return CacheUse(
        hits=_sum(rows, "cache_hit", "count"),
        misses=_sum(rows, "cache_miss", "count"),
        hit_us=_mean_us(rows, "cache_hit"),
        miss_us=_mean_us(rows, "cache_miss"),
    )


def _close_reasons(rows: list[Mapping[str, Any]]) -> list[CloseReason]:
    """The most frequent first."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.get("batch_close_reasons", {}))
    whole = counts.total()
    return [
        CloseReason(key, REASONS.get(key, key), count, count / whole)
        for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]


def _phases(rows: list[Mapping[str, Any]]) -> list[Phase]:
    means = {key: _mean_us(rows, key) or 0.0 for key, _ in PHASES}
    whole = sum(means.values())
    return [
        Phase(key, label, means[key], means[key] / whole if whole else 0.0) for key, label in PHASES
    ]


def _batch_sizes(rows: list[Mapping[str, Any]]) -> list[BatchSize]:
    counts: dict[int, int] = {}
    times: dict[int, int] = {}
    for row in rows:
        for batch in row.get("batch_stats", []):
            size = int(batch["batch_size"])
            infer = batch.get("compute_infer", {})
            counts[size] = counts.get(size, 0) + int(infer.get("count", 0))
            times[size] = times.get(size, 0) + int(infer.get("ns", 0))
    most = max(counts.values(), default=0)
    return [
        BatchSize(
            size=size,
            executions=count,
            share=count / most if most else 0.0,
            infer_us=times[size] / count / 1000 if count else None,
        )
        for size, count in sorted(counts.items())
    ]
