"""Statistics bodies of workers become outcomes, phases and batch sizes."""

from __future__ import annotations

from typing import Any

import pytest

from console.catalog import statistics


def body(version: str = "1", **changes: Any) -> dict[str, Any]:
    """Ten requests in five executions: 1 ms queued, 0.1 ms in, 3 ms running, 0.1 ms out."""
    counts = {
        "success": {"count": 10, "ns": 42_000_000},
        "fail": {"count": 1, "ns": 1000},
        "queue": {"count": 10, "ns": 10_000_000},
        "compute_input": {"count": 10, "ns": 1_000_000},
        "compute_infer": {"count": 10, "ns": 30_000_000},
        "compute_output": {"count": 10, "ns": 1_000_000},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    batches = [
        {"batch_size": 4, "compute_infer": {"count": 1, "ns": 8_000_000}},
        {"batch_size": 2, "compute_infer": {"count": 3, "ns": 9_000_000}},
    ]
    row = {
        "name": "m",
        "version": version,
        "inference_count": 10,
        "execution_count": 5,
        "inference_stats": counts,
        "batch_stats": batches,
    }
    return {"model_stats": [row | changes]}


def test_phases_are_means_of_a_request_with_their_share() -> None:
    [row] = statistics.of_worker("w", body())

    assert [(phase.key, phase.mean_us) for phase in row.phases] == [
        ("queue", 1000.0),
        ("compute_input", 100.0),
        ("compute_infer", 3000.0),
        ("compute_output", 100.0),
    ]
    assert sum(phase.share for phase in row.phases) == pytest.approx(1)
    assert row.mean_us == 4200.0
    assert row.mean_batch == 2.0


def test_batch_sizes_are_in_order_with_the_most_frequent_as_measure() -> None:
    [row] = statistics.of_worker("w", body())

    sizes = [(item.size, item.executions, item.infer_us) for item in row.batch_sizes]
    assert sizes == [(2, 3, 3000.0), (4, 1, 8000.0)]
    assert [item.share for item in row.batch_sizes] == [1.0, pytest.approx(1 / 3)]


def test_close_reasons_are_in_words_the_most_frequent_first() -> None:
    reasons = {"queue_empty": 1, "full": 6, "delay": 1, "shape": 0, "news": 2}

    total = statistics.together([body(batch_close_reasons=reasons), body("2")])

    assert [(item.key, item.executions, item.share) for item in total.close_reasons] == [
        ("full", 6, 0.6),
        ("news", 2, 0.2),
        ("delay", 1, 0.1),
        ("queue_empty", 1, 0.1),
    ]
    assert total.close_reasons[0].label == "The batch was full"
    assert total.close_reasons[1].label == "news"


def test_cache_look_ups_have_a_share_and_means() -> None:
    parts = {"cache_hit": {"count": 3, "ns": 30_000}, "cache_miss": {"count": 1, "ns": 50_000}}

    [row] = statistics.of_worker("w", body(inference_stats=parts))

    assert (row.cache.share, row.cache.hit_us, row.cache.miss_us) == (0.75, 10.0, 50.0)
    assert row.cache
    [without] = statistics.of_worker("w", body())
    assert not without.cache


def test_workers_and_versions_add_up() -> None:
    total = statistics.together([body("1"), body("2")])

    assert (total.success, total.failure, total.executions) == (20, 2, 10)
    assert total.phases[0].mean_us == 1000.0
    assert [item.executions for item in total.batch_sizes] == [6, 2]


def test_a_model_without_requests_has_no_means() -> None:
    [row] = statistics.of_worker("w", {"model_stats": [{"version": "1"}]})

    assert row.mean_us is None
    assert row.mean_batch is None
    assert row.batch_sizes == []
