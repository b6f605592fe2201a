"""Counters of a model version, read as snapshots."""

from __future__ import annotations

import pytest

from serving.errors import FailureReason
from serving.stats import LATENCY_BOUNDS_US, ModelStats, percentiles, statistics_json


def succeed(stats: ModelStats, total_us: int, times: int = 1) -> None:
    for _ in range(times):
        stats.record_success(total_us * 1000, 1, 2, 3, 4)


def test_a_fresh_model_has_every_failure_reason_at_zero():
    snapshot = ModelStats().snapshot()

    assert snapshot.failures == dict.fromkeys(FailureReason, 0)
    assert snapshot.last_inference_ms == 0


def test_a_success_counts_once_in_every_stage():
    stats = ModelStats()

    succeed(stats, 50, times=2)

    snapshot = stats.snapshot()
    assert (snapshot.queue.count, snapshot.queue.total_ns) == (2, 2)
    assert (snapshot.compute_output.count, snapshot.compute_output.total_ns) == (2, 8)


def test_a_failure_counts_by_reason_and_in_no_other_stage():
    stats = ModelStats()

    stats.record_failure(FailureReason.REJECTED, 700)

    snapshot = stats.snapshot()
    assert snapshot.failures[FailureReason.REJECTED] == 1
    assert (snapshot.fail.count, snapshot.fail.total_ns) == (1, 700)
    assert snapshot.success.count == snapshot.queue.count == 0


def test_inferences_are_the_batch_items_that_were_answered():
    """What failed, and what came out of the cache, was executed or not but is no inference."""
    stats = ModelStats()

    stats.record_success(9000, 1, 2, 3, 4, batch_size=5)
    stats.record_execution(8, "full", 1, 2, 3)
    stats.record_failure(FailureReason.BACKEND, 9000)
    stats.record_cache_hit(9000, 1, 2)
    stats.record_rescheduled(2)

    snapshot = stats.snapshot()
    assert (snapshot.inference_count, snapshot.execution_count) == (7, 1)
    assert snapshot.success.count == 2


def test_an_execution_counts_its_batch_size():
    stats = ModelStats()
    stats.record_success(1000, 1, 2, 3, 4, batch_size=8)
    stats.record_success(1000, 1, 2, 3, 4)

    stats.record_execution(4, "full", 10, 20, 30)
    stats.record_execution(4, "full", 1, 2, 3)
    stats.record_execution(1, "delay", 0, 0, 0)

    snapshot = stats.snapshot()
    assert (snapshot.inference_count, snapshot.execution_count) == (9, 3)
    assert snapshot.mean_batch_size == 3
    assert snapshot.batches[4].count == 2
    assert snapshot.batches[4].compute_infer_ns == 22
    assert snapshot.close_reasons == {"full": 2, "delay": 1}
    assert snapshot.last_inference_ms > 0


def test_two_snapshots_subtract_to_what_happened_between_them():
    stats = ModelStats()
    succeed(stats, 10, times=90)
    stats.record_execution(2, "full", 1, 1, 1)
    before = stats.snapshot()
    succeed(stats, 1000, times=10)
    stats.record_execution(2, "full", 1, 1, 1)
    stats.record_execution(8, "delay", 1, 1, 1)

    between = stats.snapshot() - before

    assert between.success.count == 10
    assert {size: item.count for size, item in between.batches.items()} == {2: 1, 8: 1}
    assert between.close_reasons == {"full": 1, "delay": 1}
    assert between.latency_percentiles_us((50,))[0] == pytest.approx(1000, rel=0.2)
    assert before.success.count == 90, "a snapshot does not change"


def test_percentiles_are_within_the_width_of_a_bucket():
    stats = ModelStats()
    for microseconds in range(1, 10_001):
        succeed(stats, microseconds)

    p50, p95, p99 = stats.snapshot().latency_percentiles_us()

    assert p50 == pytest.approx(5000, rel=0.1)
    assert p95 == pytest.approx(9500, rel=0.1)
    assert p99 == pytest.approx(9900, rel=0.1)


def test_percentiles_of_nothing_are_zero_and_of_endless_waits_the_last_bound():
    stats = ModelStats()
    assert stats.snapshot().latency_percentiles_us() == (0, 0, 0)

    succeed(stats, 10**9)

    assert stats.snapshot().latency_percentiles_us((50,)) == (LATENCY_BOUNDS_US[-1],)
    assert percentiles((), (50,)) == (0,)


def test_bounds_grow_evenly_and_cover_two_minutes():
    assert LATENCY_BOUNDS_US[0] == 1
    assert LATENCY_BOUNDS_US[-1] >= 120_000_000
    steps = [b / a for a, b in zip(LATENCY_BOUNDS_US, LATENCY_BOUNDS_US[1:], strict=False)]
    assert max(steps) <= 2
    assert max(steps[20:]) < 1.2


def test_the_json_row_has_the_fields_of_the_statistics_extension():
    stats = ModelStats()
    stats.record_success(5000, 1, 2, 3, 4, batch_size=8)
    stats.record_execution(8, "full", 1, 2, 3)

    row = statistics_json("m", 3, stats)

    assert (row["name"], row["version"], row["inference_count"]) == ("m", "3", 8)
    assert row["inference_stats"]["success"] == {"count": 1, "ns": 5000}
    assert row["inference_stats"]["cache_hit"] == {"count": 0, "ns": 0}
    assert row["batch_stats"] == [
        {
            "batch_size": 8,
            "compute_input": {"count": 1, "ns": 1},
            "compute_infer": {"count": 1, "ns": 2},
            "compute_output": {"count": 1, "ns": 3},
        }
    ]
    assert row["batch_close_reasons"] == {"full": 1}
    assert set(row) == {
        "batch_close_reasons",
        "name",
        "version",
        "last_inference",
        "inference_count",
        "execution_count",
        "inference_stats",
        "response_stats",
        "batch_stats",
        "memory_usage",
    }
