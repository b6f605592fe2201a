"""What is kept of latencies and of single responses beyond sums."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from serving.errors import BackendError, CancelledError
from serving.kept_stats import stats_of
from serving.latencies import WINDOW_S, Summaries
from serving.metrics_config import MetricsConfig
from serving.model import Model
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.response_stats import MOST_INDICES, ResponseStats
from tests.fakes import FakeClock
from tests.serving.loading import IDENTITY, request_of, spec_of
from tests.serving.test_model_decoupled import load

MS = 1_000_000


def test_summaries_forget_what_is_older_than_a_minute():
    clock = FakeClock()
    summaries = Summaries(clock.now_ns)
    for _ in range(3):
        summaries.record_success(2 * MS, MS, 0, MS, 0)
    assert summaries.request.quantiles_us((0.5,)) == pytest.approx([2000], rel=0.2)

    clock.advance_us(1_000_000 * WINDOW_S)
    summaries.refresh()

    assert summaries.request.quantiles_us((0.5,)) is None
    assert (summaries.request.count, summaries.request.total_ns) == (3, 6 * MS)


def test_nothing_is_kept_that_nobody_asked_for():
    stats = stats_of(spec_of(IDENTITY), MetricsConfig())

    assert (stats.responses, stats.first_response, stats.summaries) == (None, None, None)


def test_a_config_chooses_the_buckets_of_the_first_response():
    """CFG-023, MET-011."""
    spec = spec_of(
        IDENTITY + "model_metrics { metric_control { metric_identifier { "
        'family: "nv_inference_first_response_histogram_ms" } '
        "histogram_options { buckets: [ 4.5, 1 ] } } }"
    )

    chosen = stats_of(spec, MetricsConfig(histogram_latencies=True)).first_response
    default = stats_of(spec_of(IDENTITY), MetricsConfig(histogram_latencies=True))

    assert chosen.bounds_ms == (1, 4.5)
    assert default.first_response.bounds_ms == (100, 500, 2000, 5000)


def request_started(start_ns: int) -> InferenceRequest:
    request = InferenceRequest("m")
    request.times.compute_start_ns = start_ns
    return request


def test_response_statistics_are_kept_by_the_index_of_the_response():
    """HTTP-073: compute is since the response before, output is what the server did with it."""
    stats = ResponseStats()
    request = request_started(10)
    data = InferenceResponse("m", 1, "", is_final=False)

    assert stats.record(request, data, 110, 115)
    assert not stats.record(request, data, 315, 325)
    stats.record(request, InferenceResponse("m", 1, "", is_null=True), 335, 335)

    told = stats.as_json()
    assert list(told) == ["0", "1", "2"]
    assert told["0"]["compute_infer"] == {"count": 1, "ns": 100}
    assert told["0"]["compute_output"] == {"count": 1, "ns": 5}
    assert told["0"]["success"] == {"count": 1, "ns": 105}
    assert told["1"]["success"] == {"count": 1, "ns": 210}
    assert told["2"]["empty_response"] == {"count": 1, "ns": 10}
    assert told["2"]["success"] == told["2"]["compute_infer"] == {"count": 0, "ns": 0}


def test_failed_and_cancelled_responses_are_told_apart():
    stats = ResponseStats()
    for error in (BackendError("it broke"), CancelledError("it went away")):
        request = request_started(10)
        stats.record(request, request.error_response(error), 30, 30)

    told = stats.as_json()["0"]
    assert told["fail"] == told["cancel"] == {"count": 1, "ns": 20}
    assert told["success"]["count"] == 0


def test_a_stream_without_end_keeps_a_bounded_number_of_rows():
    stats = ResponseStats()
    request = request_started(1)
    for _ in range(MOST_INDICES + 5):
        stats.record(request, InferenceResponse("m", 1, "", is_final=False), 2, 2)

    told = stats.as_json()

    assert len(told) == MOST_INDICES
    assert told[str(MOST_INDICES - 1)]["success"]["count"] == 6


async def ask(model: Model) -> None:
    answers: list[InferenceResponse] = []
    ended = asyncio.Event()
    request = request_of({"IN": np.zeros((1, 2), np.float32)})

    def take(response: InferenceResponse) -> None:
        answers.append(response)
        if response.is_final:
            ended.set()

    request.on_response = take
    model.infer(request)
    await ended.wait()


async def test_a_decoupled_model_shows_its_responses_in_the_statistics():
    """HTTP-073."""
    model = await load(own_thread=False, decoupled=True)
    await ask(model)
    await ask(model)

    told = model.statistics()["response_stats"]

    await model.drain_and_close()
    assert [told[str(index)]["success"]["count"] for index in range(4)] == [2, 2, 2, 0]
    assert told["3"]["empty_response"]["count"] == 2
    assert told["0"]["compute_infer"]["ns"] > 0


async def test_the_first_response_of_each_request_is_counted_once():
    """MET-011."""
    model = await load(
        own_thread=False, decoupled=True, metrics=MetricsConfig(histogram_latencies=True)
    )
    await ask(model)

    histogram = model.stats.first_response

    await model.drain_and_close()
    assert sum(histogram.counts) == 1
