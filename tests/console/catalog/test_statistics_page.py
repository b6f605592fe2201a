"""The Statistics tab and the Live page: what is shown only where there is something to show."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.catalog.test_statistics import body
from tests.console.fakes import FakeWorkerClient, make_model_sample, make_sample
from workers.messages import ModelDescription

pytestmark = pytest.mark.django_db


def read(client: Any, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def fill(served: FakeWorkerClient, **row: Any) -> None:
    known = served.descriptions["echo"]
    served.descriptions["echo"] = ModelDescription(known.metadata, known.config, body(**row))


def test_it_tells_why_batches_closed_and_how_the_cache_did(
    served: FakeWorkerClient, login: Any, viewer: Any
) -> None:
    counts = {
        "success": {"count": 4, "ns": 4000},
        "cache_hit": {"count": 3, "ns": 30_000},
        "cache_miss": {"count": 1, "ns": 50_000},
    }
    fill(served, batch_close_reasons={"full": 3, "delay": 1}, inference_stats=counts)

    text = read(login(viewer), "/models/echo/statistics/")

    assert 'The batch was full <code class="muted">full</code>' in text
    assert 'aria-label="The batch was full: 75' in text
    assert 'data-chart="closings"' in text
    assert "75.0 % of requests needed no execution" in text
    assert "Not found, then kept" in text


def test_it_shows_how_full_a_sequence_model_is(
    served: FakeWorkerClient, login: Any, viewer: Any
) -> None:
    row = make_model_sample("echo", "2", sequence_slots=8, active_sequences=5, backlog_sequences=1)
    served.sample_list = [make_sample("gpu-1", None, [row])]
    fill(served)

    text = read(login(viewer), "/models/echo/statistics/")

    assert "<span>5 of 8</span>" in text
    assert "1 sequence " in text
    assert 'data-chart="sequences"' in text
    assert 'data-chart="sequences"' in read(login(viewer), "/live/?model=echo")


def test_it_shows_nothing_of_what_the_model_has_not(
    served: FakeWorkerClient, login: Any, viewer: Any
) -> None:
    served.sample_list = [make_sample("gpu-1", None, [make_model_sample("echo", "2")])]
    fill(served)

    text = read(login(viewer), "/models/echo/statistics/")

    for title in ("Why batches closed", "Response cache", ">Sequences<"):
        assert title not in text
    assert 'data-chart="sequences"' not in read(login(viewer), "/live/")
