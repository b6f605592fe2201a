"""The page of backends and its REST twin (BE-012)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from workers.messages import BackendState

pytestmark = pytest.mark.django_db
MISSING = BackendState(
    "vllm",
    "built in",
    "serving.backends.llm.backend:VllmBackend",
    problem="its package 'vllm' is missing",
    install="pip install 'conch[vllm]'",
)

CHAT = make_model("chat", state="UNAVAILABLE", reason="vllm is missing", backend="vllm")
GONE = make_model("old_chat", state="UNAVAILABLE", reason="unloaded", backend="vllm")


@pytest.fixture
def fleet(fake_workers: FakeWorkerClient) -> FakeWorkerClient:
    onnx = BackendState(
        *("onnxruntime", "built in", "serving.backends.onnxruntime.backend:X", "onnxruntime"),
        "1.32.0",
        ["CPU"],
    )
    own = BackendState("mine", "model folder", "/models/a/conch_mine.py", devices=["CPU"])
    both = BackendState(
        *("onnxruntime", "built in", "x", "onnxruntime, onnxruntime-gpu", "1.32.0", ["CPU"]),
        "both overwrite each other's files",
        "pip uninstall one",
    )
    fake_workers.infos = [
        make_worker("alpha", models=[make_model("bert")], backends=[MISSING, own, onnx]),
        make_worker("beta", models=[CHAT, GONE], backends=[MISSING, both]),
        make_worker("gone", state="lost", backends=[onnx]),
    ]
    return fake_workers


def test_anonymous_must_log_in(db: None) -> None:
    assert Client().get("/backends/")["location"].startswith("/login/")


def test_stranger_is_refused(fleet: FakeWorkerClient, stranger: Any, login: Any) -> None:
    assert login(stranger).get("/backends/").status_code == 403


def test_each_worker_shows_runtime_origin_and_models(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    found = login(viewer).get("/backends/").context["found"]

    assert [item.info.worker_id for item in found] == ["alpha", "beta"]
    rows = [(row.backend.name, row.word, row.models) for row in found[0].rows]
    assert rows == [
        ("onnxruntime", "Installed", ["bert"]),
        ("mine", "Ready", []),
        ("vllm", "Not installed", []),
    ]
    assert found[0].installed_count == 2


def test_what_is_missing_comes_with_the_command_that_brings_it(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    page = login(viewer).get("/backends/?worker=alpha").content.decode()

    assert "pip install &#x27;conch[vllm]&#x27;" in page
    assert "/models/a/conch_mine.py" in page
    assert "overwrite" not in page


def test_a_missing_runtime_that_models_need_is_a_fault_and_a_conflict_a_warning(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    beta = login(viewer).get("/backends/?worker=beta").context["found"][0]

    states = {row.backend.name: (row.state, row.word) for row in beta.rows}
    assert states == {
        "vllm": ("unavailable", "Not installed"),
        "onnxruntime": ("warning", "Conflict"),
    }


def test_only_those_that_models_use(fleet: FakeWorkerClient, viewer: Any, login: Any) -> None:
    found = login(viewer).get("/backends/?used=1&part=live").context["found"]

    assert [[row.backend.name for row in item.rows] for item in found] == [
        ["onnxruntime"],
        ["vllm"],
    ]


def test_an_empty_fleet_says_so(fake_workers: FakeWorkerClient, viewer: Any, login: Any) -> None:
    assert b"No worker is connected" in login(viewer).get("/backends/").content


def test_a_worker_that_is_not_there_is_told_from_an_empty_fleet(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    assert b"No worker matches" in login(viewer).get("/backends/?worker=gone").content


def test_the_rest_route_tells_the_same(fleet: FakeWorkerClient, viewer: Any, login: Any) -> None:
    body = login(viewer).get("/api/v1/backends?worker=beta").json()

    assert [item["worker_id"] for item in body] == ["beta"]
    vllm = body[0]["backends"][0]
    assert (vllm["name"], vllm["is_installed"], vllm["models"]) == ("vllm", False, ["chat"])
    assert vllm["install"] == MISSING.install


def test_the_rest_route_is_in_the_description(viewer: Any, login: Any) -> None:
    schema = login(viewer).get("/api/v1/schema?format=json").json()

    assert "/api/v1/backends" in schema["paths"]


def test_a_registry_that_is_away_is_told(fleet: FakeWorkerClient, viewer: Any, login: Any) -> None:
    client = login(viewer)
    fleet.error = ConnectionError("refused")

    assert client.get("/api/v1/backends").status_code == 503


def test_a_device_and_its_remark_stay_on_one_line(
    fake_workers: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    torch = BackendState(
        *("pytorch", "built in", "x", "torch", "2.9.0", ["CPU", "CUDA (no GPU here)"]),
    )
    fake_workers.infos = [make_worker("alpha", backends=[torch])]

    page = login(viewer).get("/backends/").content.decode()

    assert '<span class="nowrap">CUDA (no GPU here)</span>' in page
