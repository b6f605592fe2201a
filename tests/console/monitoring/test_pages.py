"""Overview, live metrics and the series of the REST API, as each of the cast sees them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from console.monitoring import services
from console.monitoring.models import MinuteSample
from tests.console.fakes import (
    FakeWorkerClient,
    make_device,
    make_model,
    make_model_sample,
    make_sample,
    make_worker,
)
from workers.messages import Event

pytestmark = pytest.mark.django_db
PAGES = ["/", "/live/"]
SERIES = "/api/v1/metrics/series"


@pytest.fixture
def busy_fleet(fake_workers: FakeWorkerClient) -> FakeWorkerClient:
    models = [
        make_model("bert", "2"),
        make_model("resnet", "3", "UNAVAILABLE", reason="engine built for compute 8.6"),
        make_model("gone", "1", "UNAVAILABLE", reason="unloaded"),
    ]
    fake_workers.infos = [
        make_worker("gpu-1", models=models),
        make_worker("edge", state="lost", last_seen=time.time() - 840, models=models[:1]),
    ]
    fake_workers.sample_list = [make_sample("gpu-1", models=[make_model_sample("bert", "2")])]
    fake_workers.event_list = [
        Event("gpu-1", time.time() - 360, "model_state", "resnet", "3", "UNAVAILABLE")
    ]
    return fake_workers


@pytest.mark.parametrize("path", [*PAGES, "/?part=live"])
def test_anonymous_must_log_in(path: str, db: None) -> None:
    assert Client().get(path)["location"].startswith("/login/")


def test_stranger_sees_neither_page_nor_series(stranger: Any, login: Any) -> None:
    client = login(stranger)

    assert client.get("/")["location"] == "/account/"
    assert client.get("/live/").status_code == 403
    assert client.get(SERIES).status_code == 403


@pytest.mark.parametrize("path", PAGES)
def test_viewer_sees_the_page_without_any_worker(path: str, viewer: Any, login: Any) -> None:
    answer = login(viewer).get(path)

    assert answer.status_code == 200


def test_overview_names_what_needs_attention_with_reason_age_and_link(
    busy_fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/").content.decode().replace("\u00a0", " ")

    assert "engine built for compute 8.6" in page
    assert "6 min ago" in page
    assert 'href="/models/resnet/"' in page
    assert "heartbeat expired; it served 1 model" in page
    assert 'data-problems="2"' in page
    assert "<title>(2) Overview" in page


def test_overview_has_the_five_numbers(
    busy_fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/?part=live").content.decode()

    assert '100<span class="unit">/s</span>' in page
    assert '0<span class="unit">%</span>' in page
    assert '8.64<span class="unit">ms</span>' in page
    assert '1<span class="unit">of 2</span>' in page


def test_overview_is_quiet_when_all_is_well(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    fake_workers.infos = [make_worker(models=[make_model("m")])]

    assert b"All models that should serve are serving" in login(viewer).get("/").content


def test_overview_tells_failing_requests(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    fake_workers.infos = [make_worker(models=[make_model("m")])]
    rows = [
        make_model_sample("m", success_count=882, failure_count=118, rejected_count=100),
        make_model_sample("n", success_count=0, failure_count=3),
    ]
    fake_workers.sample_list = [make_sample(models=rows)]

    page = login(viewer).get("/").content.decode()

    assert "the queue rejected 100, failed 18 of 1,000 requests in 5 min" in page
    assert "failed 3 of 3 requests in 5 min" in page


def test_a_stopped_worker_alarms_nobody(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    fake_workers.infos = [
        make_worker(models=[make_model("m")]),
        make_worker("edge", state="stopped", last_seen=time.time() - 840),
    ]

    assert b"All models that should serve are serving" in login(viewer).get("/").content
    assert "Stopped" in login(viewer).get("/workers/").content.decode()
    assert b"edge" not in login(viewer).get("/workers/?problems=1").content


def test_worker_that_was_not_heard_of_is_unknown_never_green(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    fake_workers.infos = [make_worker("w", last_seen=time.time() - 30)]

    page = login(viewer).get("/").content.decode()

    assert "not heard of" in page
    assert "Unknown" in page


def test_pages_render_while_redis_is_away(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    fake_workers.error = ConnectionError("Connection refused")
    client = login(viewer)

    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code == 200
        assert b"Connection refused" in answer.content
    assert client.get(SERIES).status_code == 200


def test_devices_are_gpus_where_there_are_some_else_cpu(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    client = login(viewer)
    fake_workers.infos = [make_worker("w")]
    fake_workers.sample_list = [make_sample("w")]
    assert "40 %" in client.get("/").content.decode()

    fake_workers.sample_list = [make_sample("w", devices=[make_device()])]
    assert "58 / 141 GB" in client.get("/").content.decode()


def test_live_page_keeps_its_filters_in_the_address(
    busy_fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/live/?model=bert&worker=gpu-1&range=15m").content.decode()

    assert "<option selected>bert</option>" in page
    assert f"{SERIES}?model=bert&amp;worker=gpu-1&amp;range=15m" in page


def test_live_page_takes_a_strange_range_as_the_usual_one(viewer: Any, login: Any) -> None:
    assert b"range=5m" in login(viewer).get("/live/?range=99y").content


def test_series_start_the_charts_with_the_steps_that_have_ended(
    busy_fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    at = time.time() - 20
    busy_fleet.sample_list += [make_sample("gpu-1", at, [make_model_sample("bert", "2")])]

    body = login(viewer).get(SERIES, {"range": "5m"}).json()

    assert body["step_s"] == 2
    rates = body["models"]["bert"]["inferences_per_s"]
    assert [rate for rate in rates if rate] == [200]
    assert [event["model"] for event in body["events"]] == []


def test_series_mark_changes_of_what_serves(
    busy_fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    client = login(viewer)

    assert [mark["model"] for mark in client.get(SERIES, {"range": "15m"}).json()["events"]] == [
        "resnet"
    ]
    assert client.get(SERIES, {"range": "15m", "model": "bert"}).json()["events"] == []


def test_bad_range_is_explained(viewer: Any, login: Any) -> None:
    answer = login(viewer).get(SERIES, {"range": "2m"})

    assert answer.status_code == 400
    assert "use 5m, 15m, 1h or 24h" in answer.json()["error"]["fields"]["range"][0]


def test_minutes_outlive_the_stream(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    start = int(time.time() // 60) * 60 - 600
    fake_workers.sample_list = [
        make_sample("w", start + second, [make_model_sample("m")]) for second in range(120)
    ]
    assert services.roll_up() == 2
    assert services.roll_up() >= 0
    fake_workers.sample_list = []

    body = login(viewer).get(SERIES, {"range": "1h"}).json()

    assert MinuteSample.objects.count() == 2
    assert body["models"]["m"]["inferences_per_s"].count(200.0) == 2


def test_minute_that_still_runs_is_not_rolled_up(fake_workers: FakeWorkerClient) -> None:
    fake_workers.sample_list = [make_sample("w", time.time())]

    assert services.roll_up() == 0


def test_the_stream_continues_the_minutes_without_counting_twice(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    start = int(time.time() // 60) * 60 - 300
    fake_workers.sample_list = [
        make_sample("w", start + second, [make_model_sample("m")]) for second in range(240)
    ]
    services.roll_up(now=start + 130)

    rates = login(viewer).get(SERIES, {"range": "1h"}).json()["models"]["m"]["inferences_per_s"]

    assert [rate for rate in rates if rate] == [200.0] * 4


def test_old_minutes_are_forgotten(fake_workers: FakeWorkerClient) -> None:
    fake_workers.sample_list = [make_sample("w", time.time() - 600)]
    services.roll_up()
    MinuteSample.objects.update(minute="2020-01-01T00:00:00Z")

    assert services.forget_old() == 1
