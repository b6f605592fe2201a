"""What is counted about one model version, and how it is read.

`ModelStats` is plain integers on the loop thread: a request costs one bisect and a few additions, a
batch a few more. `snapshot()` gives an immutable copy; two of them subtract, so that a reader
computes rates and percentiles of any interval. Update rules as in Triton's statistics: success,
queue and compute count requests, inference_count counts batch items that were answered,
execution_count executions.
Source: spec HTTP-070..074, MET-001..012.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from serving.errors import FailureReason

if TYPE_CHECKING:
    from serving.latencies import Histogram, Summaries
    from serving.response_stats import ResponseStats

_STEPS_PER_DOUBLING = 4
_LARGEST_US = 120_000_000


def _log_spaced_bounds() -> tuple[int, ...]:
    bounds: list[int] = []
    step = 0
    while not bounds or bounds[-1] < _LARGEST_US:
        bound = round(2.0 ** (step / _STEPS_PER_DOUBLING))
        if not bounds or bound > bounds[-1]:
            bounds.append(bound)
        step += 1
    return tuple(bounds)


LATENCY_BOUNDS_US = _log_spaced_bounds()
"""Upper bounds (inclusive) of the latency buckets; one more bucket takes what is longer."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How often, and how long in all."""

    count: int = 0
    total_ns: int = 0

    def __sub__(self, other: Duration) -> Duration:
        return Duration(self.count - other.count, self.total_ns - other.total_ns)

    def as_json(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.total_ns}


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Executions of one batch size."""

    count: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0

    def __sub__(self, other: BatchStatistics) -> BatchStatistics:
        return BatchStatistics(
            self.count - other.count,
            self.compute_input_ns - other.compute_input_ns,
            self.compute_infer_ns - other.compute_infer_ns,
            self.compute_output_ns - other.compute_output_ns,
        )


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """The counters at one moment, or (after a subtraction) over an interval."""

    time_ns: int = 0
    """Monotonic; after a subtraction the length of the interval."""
    last_inference_ms: int = 0
    """Milliseconds since the epoch; 0: none yet."""
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    cache_hit: Duration = Duration()
    cache_miss: Duration = Duration()
    failures: Mapping[FailureReason, int] = field(default_factory=dict)
    invalid_count: int = 0
    """Requests refused before any scheduler saw them: a caller's mistake, no failure."""
    latency_buckets: tuple[int, ...] = ()
    """Successful requests by duration, see LATENCY_BOUNDS_US."""
    batches: Mapping[int, BatchStatistics] = field(default_factory=dict)
    close_reasons: Mapping[str, int] = field(default_factory=dict)
    """Why batches closed -> how often."""

    def __sub__(self, other: StatsSnapshot) -> StatsSnapshot:
        nothing = BatchStatistics()
        before = other.latency_buckets or (0,) * len(self.latency_buckets)
        return StatsSnapshot(
            self.time_ns - other.time_ns,
            self.last_inference_ms,
            self.inference_count - other.inference_count,
            self.execution_count - other.execution_count,
            self.success - other.success,
            self.fail - other.fail,
            self.queue - other.queue,
            self.compute_input - other.compute_input,
            self.compute_infer - other.compute_infer,
            self.compute_output - other.compute_output,
            self.cache_hit - other.cache_hit,
            self.cache_miss - other.cache_miss,
            {key: count - other.failures.get(key, 0) for key, count in self.failures.items()},
            self.invalid_count - other.invalid_count,
            tuple(now - then for now, then in zip(self.latency_buckets, before, strict=True)),
            {size: item - other.batches.get(size, nothing) for size, item in self.batches.items()},
            {
                key: count - other.close_reasons.get(key, 0)
                for key, count in self.close_reasons.items()
            },
        )

    @property
    def mean_batch_size(self) -> float:
        """Inferences for each execution; 0.0 where nothing executed."""
        return self.inference_count / self.execution_count if self.execution_count else 0.0

    def latency_percentiles_us(self, wanted: Sequence[float] = (50, 95, 99)) -> tuple[float, ...]:
        return percentiles(self.latency_buckets, wanted)


def percentiles(buckets: Sequence[int], wanted: Sequence[float]) -> tuple[float, ...]:
    """Percentiles in microseconds of bucket counts, interpolated inside the bucket.

    0.0 for each where the buckets are empty.
    """
    total = sum(buckets)
    return tuple(_percentile(buckets, total * share / 100) for share in wanted)


def _percentile(buckets: Sequence[int], rank: float) -> float:
    seen = 0
    for index, count in enumerate(buckets):
        if count and seen + count >= rank:
            low = LATENCY_BOUNDS_US[index - 1] if index else 0
            if index == len(LATENCY_BOUNDS_US):
                return float(low)
            return low + (LATENCY_BOUNDS_US[index] - low) * max(0.0, rank - seen) / count
        seen += count
    return 0.0


class _Batches:
    """Running sums for one batch size."""

    __slots__ = ("count", "infer_ns", "input_ns", "output_ns")

    def __init__(self) -> None:
        self.count = self.input_ns = self.infer_ns = self.output_ns = 0


class ModelStats:
    """Counters of one model version. Loop thread only."""

    def __init__(
        self,
        *,
        responses: ResponseStats | None = None,
        first_response: Histogram | None = None,
        summaries: Summaries | None = None,
    ) -> None:
        """What is None is not kept; `serving.kept_stats` knows what is wanted."""
        self.responses = responses
        self.first_response = first_response
        self.summaries = summaries
        self._last_inference_ms = 0
        self._inference_count = self._execution_count = 0
        self._success_count = self._success_ns = 0
        self._fail_count = self._fail_ns = 0
        self._queue_ns = self._input_ns = self._infer_ns = self._output_ns = 0
        self._hit_count = self._hit_ns = self._miss_count = self._miss_ns = 0
        self._invalid_count = 0
        self._failures = dict.fromkeys(FailureReason, 0)
        self._buckets = [0] * (len(LATENCY_BOUNDS_US) + 1)
        self._batches: dict[int, _Batches] = {}
        self._close_reasons: dict[str, int] = {}

    def record_success(
        self,
        total_ns: int,
        queue_ns: int,
        input_ns: int,
        infer_ns: int,
        output_ns: int,
        *,
        batch_size: int = 1,
    ) -> None:
        """One request with `batch_size` batch items answered. All durations in nanoseconds."""
        self._inference_count += batch_size
        self._input_ns += input_ns
        self._infer_ns += infer_ns
        self._output_ns += output_ns
        self._count_success(total_ns, queue_ns)
        if self.summaries is not None:
            self.summaries.record_success(total_ns, queue_ns, input_ns, infer_ns, output_ns)

    def record_cache_hit(self, total_ns: int, queue_ns: int, lookup_ns: int) -> None:
        """One request answered out of the response cache: it succeeded, and nothing computed."""
        self._hit_count += 1
        self._hit_ns += lookup_ns
        self._count_success(total_ns, queue_ns)
        if self.summaries is not None:
            self.summaries.record_cache_hit(total_ns, queue_ns, lookup_ns)

    def record_cache_miss(self, took_ns: int) -> None:
        """One request that the cache could not answer; `took_ns`: looking up and keeping."""
        self._miss_count += 1
        self._miss_ns += took_ns
        if self.summaries is not None:
            self.summaries.record_cache_miss(took_ns)

    def record_failure(self, reason: FailureReason, total_ns: int) -> None:
        """One request that a scheduler or a model failed."""
        self._failures[reason] += 1
        self._fail_count += 1
        self._fail_ns += total_ns

    def record_invalid(self) -> None:
        """One request refused by the checks before scheduling."""
        self._invalid_count += 1

    def record_rescheduled(self, batch_size: int) -> None:
        """An execution of a request that has not come to its end: it infers, and goes on."""
        self._inference_count += batch_size

    def record_execution(
        self, batch_size: int, close_reason: str, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """One execution of `batch_size` batch items, whatever becomes of them."""
        self._last_inference_ms = time.time_ns() // 1_000_000
        self._execution_count += 1
        batches = self._batches.get(batch_size)
        if batches is None:
            batches = self._batches[batch_size] = _Batches()
        batches.count += 1
        batches.input_ns += input_ns
        batches.infer_ns += infer_ns
        batches.output_ns += output_ns
        if close_reason:
            self._close_reasons[close_reason] = self._close_reasons.get(close_reason, 0) + 1

    def _count_success(self, total_ns: int, queue_ns: int) -> None:
        self._success_count += 1
        self._success_ns += total_ns
        self._queue_ns += queue_ns
        self._buckets[bisect_left(LATENCY_BOUNDS_US, total_ns // 1000)] += 1

    def snapshot(self) -> StatsSnapshot:
        count = self._success_count
        computed = count - self._hit_count
        return StatsSnapshot(
            time_ns=time.monotonic_ns(),
            last_inference_ms=self._last_inference_ms,
            inference_count=self._inference_count,
            execution_count=self._execution_count,
            success=Duration(count, self._success_ns),
            fail=Duration(self._fail_count, self._fail_ns),
            queue=Duration(count, self._queue_ns),
            compute_input=Duration(computed, self._input_ns),
            compute_infer=Duration(computed, self._infer_ns),
            compute_output=Duration(computed, self._output_ns),
            cache_hit=Duration(self._hit_count, self._hit_ns),
            cache_miss=Duration(self._miss_count, self._miss_ns),
            failures=dict(self._failures),
            invalid_count=self._invalid_count,
            latency_buckets=tuple(self._buckets),
            batches={
                size: BatchStatistics(item.count, item.input_ns, item.infer_ns, item.output_ns)
                for size, item in sorted(self._batches.items())
            },
            close_reasons=dict(self._close_reasons),
        )


def statistics_json(name: str, version: int, stats: ModelStats) -> dict[str, Any]:
    """One row of "model_stats". Source: spec HTTP-F.

    `batch_close_reasons` is Conch's own: why executed batches closed -> how often.
    """
    snapshot = stats.snapshot()
    batches = []
    for size, item in snapshot.batches.items():
        batches.append(
            {
                "batch_size": size,
                "compute_input": {"count": item.count, "ns": item.compute_input_ns},
                "compute_infer": {"count": item.count, "ns": item.compute_infer_ns},
                "compute_output": {"count": item.count, "ns": item.compute_output_ns},
            }
        )
    stages = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    return {
        "name": name,
        "version": str(version),
        "last_inference": snapshot.last_inference_ms,
        "inference_count": snapshot.inference_count,
        "execution_count": snapshot.execution_count,
        "inference_stats": {
            stage: getattr(snapshot, stage).as_json()
            for stage in (*stages, "cache_hit", "cache_miss")
        },
        "response_stats": {} if stats.responses is None else stats.responses.as_json(),
        "batch_stats": batches,
        "batch_close_reasons": dict(snapshot.close_reasons),
        "memory_usage": [],
    }
