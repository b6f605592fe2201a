"""The list of workers and one worker, as each of the cast sees them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from console.core.models import AuditEntry
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


@pytest.fixture
def fleet(fake_workers: FakeWorkerClient) -> FakeWorkerClient:
    models = [
        make_model("bert", "2"),
        make_model("resnet", "3", "UNAVAILABLE", reason="no such file"),
        make_model("draft", "", ""),
        make_model("speech", "1", "LOADING", reason="warming up"),
    ]
    fake_workers.infos = [
        make_worker("alpha", models=models, devices=[make_device()]),
        make_worker("beta", state="draining"),
        make_worker("gamma", state="lost", last_seen=time.time() - 900),
    ]
    fake_workers.sample_list = [
        make_sample("alpha", models=[make_model_sample("bert", "2")], devices=[make_device()])
    ]
    fake_workers.event_list = [
        Event("alpha", time.time() - 60, "model_state", "resnet", "3", "UNAVAILABLE", "no file"),
        Event("alpha", time.time() - 90, "worker_started"),
        Event("beta", time.time() - 30, "model_state", "other", "1", "READY"),
    ]
    return fake_workers


@pytest.mark.parametrize("path", ["/workers/", "/workers/alpha/"])
def test_anonymous_must_log_in(path: str, db: None) -> None:
    assert Client().get(path)["location"].startswith("/login/")


@pytest.mark.parametrize("path", ["/workers/", "/workers/alpha/"])
def test_stranger_is_refused(path: str, fleet: FakeWorkerClient, stranger: Any, login: Any) -> None:
    assert login(stranger).get(path).status_code == 403


def test_list_shows_state_load_and_what_is_wrong(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/workers/").content.decode().replace("\u00a0", " ")

    assert "1 of 3 connected" in page
    assert "heartbeat expired" in page
    assert "15 min ago" in page
    assert "1 model version failed" in page
    assert "58 / 141 GB" in page


def test_list_is_filtered_by_words_and_by_problems(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    client = login(viewer)

    by_model = client.get("/workers/?q=bert").content.decode()
    assert "/workers/alpha/" in by_model
    assert "/workers/beta/" not in by_model

    fleet.infos = [make_worker("fine"), *fleet.infos]
    problems = client.get("/workers/?problems=1").content.decode()
    assert "/workers/gamma/" in problems
    assert "/workers/fine/" not in problems

    assert b"No worker matches" in client.get("/workers/?q=nothing").content


def test_empty_list_says_how_to_get_a_worker(viewer: Any, login: Any) -> None:
    assert b"manage.py up" in login(viewer).get("/workers/").content


def test_part_for_the_live_page_is_a_fragment(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/workers/?part=live").content

    assert b"<html" not in page
    assert b'data-part="workers"' in page


def test_worker_page_shows_models_rates_and_events(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/workers/alpha/").content.decode()

    assert "no such file" in page
    assert "Not served" in page
    assert 'class="num">200<' in page
    assert "Worker started" in page
    assert "other" not in page


def test_unknown_worker_is_404_in_words(viewer: Any, login: Any) -> None:
    answer = login(viewer).get("/workers/nobody/")

    assert answer.status_code == 404
    assert b"No worker is called nobody" in answer.content


def test_models_of_a_lost_worker_are_not_shown_as_ready(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    fake_workers.infos = [make_worker("w", state="lost", models=[make_model("m")])]

    page = login(viewer).get("/workers/w/?part=live").content.decode()

    assert "state--ok" not in page


def test_a_stopped_worker_serves_nothing_and_can_be_forgotten(
    fake_workers: FakeWorkerClient, operator: Any, login: Any
) -> None:
    stopped = make_worker("w", state="stopped", last_seen=time.time() - 900)
    fake_workers.infos = [stopped]

    page = login(operator).get("/workers/w/").content.decode()

    assert "Stopped" in page
    assert "heartbeat" not in page
    login(operator).post("/workers/w/forget/")
    assert fake_workers.worker("w") is None


def test_only_operators_forget_a_worker_and_only_a_lost_one(
    fleet: FakeWorkerClient, viewer: Any, operator: Any, login: Any
) -> None:
    assert login(viewer).post("/workers/gamma/forget/").status_code == 403
    assert login(operator).get("/workers/gamma/forget/").status_code == 405

    answer = login(operator).post("/workers/alpha/forget/", follow=True)
    assert b"still connected" in answer.content

    login(operator).post("/workers/gamma/forget/")
    assert fleet.worker("gamma") is None
    assert AuditEntry.objects.get().action == "forget worker"


def test_forget_is_offered_to_operators_only(
    fleet: FakeWorkerClient, viewer: Any, operator: Any, login: Any
) -> None:
    assert b"Forget this worker" not in login(viewer).get("/workers/gamma/").content
    assert b"Forget this worker" in login(operator).get("/workers/gamma/").content


def test_a_version_that_loads_tells_how_far_it_is(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/workers/alpha/").content.decode()

    assert "warming up" in page
    assert "no such file" in page
