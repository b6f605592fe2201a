"""Sums of telemetry: percentiles, merging, series."""

from __future__ import annotations

from typing import Any

import pytest

from console.monitoring.aggregate import merge_samples, percentiles
from console.monitoring.selectors import latest_rates
from console.monitoring.series import build_series
from tests.console.fakes import make_device, make_model_sample, make_sample


def test_percentiles_of_nothing_are_none() -> None:
    assert percentiles({}) == [None, None, None]


def test_percentiles_lie_inside_their_bucket() -> None:
    p50, p95, p99 = percentiles({1000.0: 50, 1200.0: 45, 5000.0: 5})

    assert p50 == 1000.0
    assert p95 == 1200.0
    assert p99 is not None
    assert 4000 < p99 < 5000


def test_requests_beyond_the_last_bound_are_not_infinitely_slow() -> None:
    assert percentiles({1000.0: 1, float("inf"): 9}, [50.0]) == [1000.0]


def test_rates_add_over_workers_and_average_over_time() -> None:
    samples = [
        make_sample("a", 1.0, [make_model_sample("m", inference_count=100)]),
        make_sample("a", 2.0, [make_model_sample("m", inference_count=300)]),
        make_sample("b", 1.5, [make_model_sample("m", inference_count=50)], interval_s=2.0),
    ]

    rates = latest_rates(samples)

    assert rates["m"].inferences_per_s == pytest.approx(200 + 25)
    assert rates["m", "1"] == rates["m"]


def test_rates_of_everything_stand_under_the_empty_name() -> None:
    models = [make_model_sample("m", queued=2), make_model_sample("n", queued=3)]

    rates = latest_rates([make_sample(models=models)])

    assert rates[""].queued == 5
    assert rates[""].requests_per_s == 200


def test_queue_counts_what_waits_now_not_over_time() -> None:
    samples = [make_sample("a", at, [make_model_sample("m", queued=4)]) for at in (1.0, 2.0, 3.0)]

    assert latest_rates(samples)["m"].queued == 4


def test_error_share_of_no_requests_does_not_apply() -> None:
    idle = make_model_sample("m", success_count=0, failure_count=0, inference_count=0)
    half = make_model_sample("n", success_count=50, failure_count=50)

    rates = latest_rates([make_sample(models=[idle, half])])

    assert rates["m"].error_share is None
    assert rates["n"].error_share == 0.5


def test_merged_samples_say_the_same_as_their_parts() -> None:
    parts = [
        make_sample("a", float(second), [make_model_sample("m", success_count=10 * second)])
        for second in (1, 2, 3)
    ]

    merged = merge_samples(parts)

    assert merged.interval_s == 3.0
    assert merged.at == 3.0
    assert merged.models[0].success_count == 60
    assert latest_rates([merged])["m"] == latest_rates(parts)["m"]


def test_series_has_gaps_without_samples_and_zeros_without_requests() -> None:
    idle = make_model_sample(
        "m", success_count=0, inference_count=0, execution_count=0, latency_buckets={}
    )
    samples = [make_sample("a", 102.5, [make_model_sample("m")]), make_sample("a", 106.5, [idle])]

    series = build_series(samples, step_s=2, start=102, end=107)

    assert series["times"] == [102, 104, 106]
    assert series["models"]["m"]["inferences_per_s"] == [200, None, 0]
    assert series["totals"]["p99_us"][1:] == [None, None]
    assert series["totals"]["mean_batch"] == [4.0, None, None]


def test_series_can_be_of_one_model_on_one_worker() -> None:
    both = [make_model_sample("m"), make_model_sample("n")]
    samples = [make_sample("a", 10.0, both), make_sample("b", 10.0, both)]

    series = build_series(samples, step_s=2, start=10, end=10, model="n", worker="b")

    assert list(series["models"]) == ["n"]
    assert list(series["workers"]) == ["b"]
    assert series["totals"]["inferences_per_s"] == [200]


def test_series_has_batch_sizes_workers_and_devices() -> None:
    sample = make_sample("a", 10.0, [make_model_sample("m")], devices=[make_device(1)])

    series = build_series([sample], step_s=2, start=10, end=10)

    assert series["batch_sizes"] == {"4": [50]}
    assert series["workers"]["a"]["cpu_percent"] == [40.0]
    assert series["devices"]["a gpu-1"]["utilization"] == [0.71]


def test_series_tells_why_batches_closed() -> None:
    other = make_model_sample("n", close_reasons={"delay": 5, "queue_empty": 1})
    samples = [
        make_sample("a", 10.0, [make_model_sample("m"), other]),
        make_sample("a", 12.0, [other]),
    ]

    series = build_series(samples, step_s=2, start=10, end=12)

    assert series["close_reasons"] == {
        "delay": [15, 5],
        "full": [40, 0],
        "queue_empty": [1, 1],
    }


def test_sequences_are_counted_as_they_are_now_over_workers() -> None:
    def serving(active: int, waiting: int) -> Any:
        return make_model_sample(
            "m", sequence_slots=8, active_sequences=active, backlog_sequences=waiting
        )

    samples = [
        make_sample("a", 10.0, [serving(8, 3)]),
        make_sample("a", 10.9, [serving(5, 0)]),
        make_sample("b", 10.0, [serving(1, 0)]),
    ]

    totals = build_series(samples, step_s=2, start=10, end=10)["totals"]
    rates = latest_rates(samples)["m"]

    assert (totals["sequence_slots"], totals["active_sequences"]) == ([16], [6])
    assert totals["backlog_sequences"] == [0]
    assert (rates.sequence_slots, rates.active_sequences, rates.backlog_sequences) == (16, 6, 0)


def test_a_merged_minute_keeps_reasons_and_its_fullest_moment() -> None:
    rows = [
        make_model_sample("m", sequence_slots=4, active_sequences=4, backlog_sequences=2),
        make_model_sample("m", sequence_slots=4, active_sequences=1),
    ]

    [row] = merge_samples([make_sample("a", 1.0, rows[:1]), make_sample("a", 2.0, rows[1:])]).models

    assert row.close_reasons == {"delay": 20, "full": 80}
    assert (row.sequence_slots, row.active_sequences, row.backlog_sequences) == (4, 4, 2)


def test_samples_outside_the_range_are_left_out() -> None:
    samples = [make_sample("a", 1.0), make_sample("a", 99.0)]

    assert build_series(samples, step_s=2, start=10, end=20)["workers"] == {}
