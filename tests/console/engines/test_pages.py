"""Pages, REST and the command of engine builds: who may, what they show, what they do."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from console.engines import operations
from console.engines.management.commands import build_engine
from console.engines.models import EngineBuild
from console.repository.models import Upload
from tests.console.fakes import FakeWorkerClient, make_device, make_worker
from workers.engine_messages import EngineProgress
from workers.messages import BackendState

NEW = "/engines/new/adder/"


def text_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def posted(**changes: str) -> dict[str, str]:
    """What the browser sends of the prefilled form."""
    shapes = {"low": "1x4", "best": "8x4", "high": "32x4"}
    form = {f"p0_{index}_{place}": text for index in (0, 1) for place, text in shapes.items()}
    fields = {"version": "1", "target": "adder_trt", "worker_id": "gpu-1", "precision": "model"}
    return form | fields | changes


def test_reading_needs_the_role_viewer_and_building_the_role_operator(
    build: Any, login: Any, viewer: Any, stranger: Any, operator: Any
) -> None:
    row = build()
    for path in ("/engines/", row.get_absolute_url()):
        assert Client().get(path).status_code == 302
        assert login(stranger).get(path).status_code == 403
        assert login(viewer).get(path).status_code == 200
    assert login(viewer).get(NEW).status_code == 403
    assert login(operator).get(NEW).status_code == 200
    for deed in ("cancel", "retry"):
        assert login(viewer).post(f"{row.get_absolute_url()}{deed}/").status_code == 403
        assert login(operator).get(f"{row.get_absolute_url()}{deed}/").status_code == 405
    assert login(viewer).get("/engines/999/").status_code == 404


def test_the_form_is_prefilled_from_the_model(model: Any, login: Any, operator: Any) -> None:
    page = login(operator).get(NEW).content.decode()
    assert 'value="adder_trt"' in page
    assert page.count('value="32x4"') == 2
    assert "gpu-1 (H200)" in page
    assert "cpu-1 (no GPU)" in page


def test_the_form_says_which_workers_have_no_tensorrt(
    model: Any, login: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    missing = BackendState("tensorrt", install="pip install 'conch[tensorrt-rtx]'")
    fake_workers.infos[0] = make_worker("gpu-1", devices=[make_device()], backends=[missing])
    page = text_of(login(operator).get(NEW))
    assert page.index("cpu-1 (no GPU)") < page.index("gpu-1 (H200, no TensorRT)")

    answer = login(operator).post(NEW, posted())
    assert answer.status_code == 422
    assert "has no TensorRT. Install it where the worker runs" in text_of(answer)


def test_the_form_starts_a_build(
    model: Any, login: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    fields = {"capabilities": "8.6, 8.9", "p1_0_low": "64x4", "p1_0_best": "64x4"}
    fields |= {"p1_0_high": "64x4", "p1_1_low": "64x4", "p1_1_best": "64x4", "p1_1_high": "64x4"}
    answer = login(operator).post(NEW, posted(**fields, workspace_mib="100"))

    row = EngineBuild.objects.get()
    assert answer.url == row.get_absolute_url()
    assert row.capabilities == ["8.6", "8.9"]
    assert row.workspace_bytes == 100 << 20
    assert [profile["B"][2] for profile in row.profiles] == [[32, 4], [64, 4]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"p0_0_best": "1x?"}, "Write a number in place of each ?"),
        ({"p0_1_high": ""}, "Write all three shapes."),
        ({"p0_0_low": "9x4"}, "must not fall from smallest to largest"),
        ({"target": "adder"}, "cannot become a version of 'adder' itself"),
        ({"capabilities": "ampere"}, "'ampere' is none: write it as 8.9"),
        ({"worker_id": "gpu-7"}, "gpu-7 is not one of the available choices"),
    ],
)
def test_a_form_that_cannot_be_says_why_and_keeps_what_was_typed(
    model: Any, login: Any, operator: Any, changes: dict[str, str], words: str
) -> None:
    answer = login(operator).post(NEW, posted(**changes))
    assert answer.status_code == 422
    assert words in text_of(answer).replace("&#x27;", "'")
    assert all(f'value="{value}"' in answer.content.decode() for value in ("8x4", "1x4"))
    assert not EngineBuild.objects.exists()


def test_a_running_build_shows_its_progress_and_asks_again(
    build: Any, tell: Any, login: Any, operator: Any, viewer: Any
) -> None:
    row = build()
    tell(row, "running", phase="Optimizing graph", fraction=0.42)
    operations.follow()
    page = login(operator).get(row.get_absolute_url())
    assert "Optimizing graph · 42 %" in text_of(page)
    assert 'hx-trigger="every 1s"' in page.content.decode()
    assert "Cancel the build" in text_of(page)
    assert "Cancel the build" not in text_of(login(viewer).get(row.get_absolute_url()))
    fragment = login(viewer).get(row.get_absolute_url(), headers={"HX-Target": "engine"})
    assert b"<html" not in fragment.content


def test_a_build_that_is_over_shows_its_result_or_the_reason(
    build: Any, tell: Any, login: Any, operator: Any
) -> None:
    good, bad = build(), build()
    tell(good, "succeeded", version=1, engine_bytes=147_620, builder="TensorRT-RTX 1.7.1.116")
    tell(bad, "failed", error="operator Wiggle is unknown")
    operations.follow()

    page = login(operator).get(good.get_absolute_url())
    assert "TensorRT-RTX 1.7.1.116" in text_of(page)
    assert 'href="/models/adder_trt/versions/"' in page.content.decode()
    assert "hx-trigger" not in page.content.decode()
    page = login(operator).get(bad.get_absolute_url())
    assert "operator Wiggle is unknown" in text_of(page)
    assert "Retry" in text_of(page)
    listed = text_of(login(operator).get("/engines/?state=failed"))
    assert "1 found" in listed
    assert "operator Wiggle is unknown" in listed


def test_buttons_cancel_and_retry(build: Any, tell: Any, login: Any, operator: Any) -> None:
    row = build()
    client = login(operator)
    assert client.post(f"{row.get_absolute_url()}cancel/").url == row.get_absolute_url()
    tell(row, "cancelled")
    operations.follow()
    answer = client.post(f"{row.get_absolute_url()}retry/")
    assert answer.url == f"/engines/{row.pk + 1}/"
    again = client.post(f"{row.get_absolute_url()}cancel/", follow=True)
    assert "is over" in text_of(again)


def test_models_with_an_onnx_file_offer_the_form(
    model: Any, repository: Any, login: Any, operator: Any, viewer: Any
) -> None:
    (repository / "script" / "1").mkdir(parents=True)
    (repository / "script" / "1" / "model.py").write_text("")
    client = login(operator)
    assert NEW in client.get("/models/adder/versions/").content.decode()
    assert NEW not in login(viewer).get("/models/adder/versions/").content.decode()
    assert "/engines/new/" not in client.get("/models/script/versions/").content.decode()
    answer = client.get("/engines/new/script/", follow=True)
    assert "no version with an ONNX file" in text_of(answer)
    assert client.get("/engines/new/nothing/").status_code == 404


def test_the_api_builds_lists_and_cancels(
    model: Any, login: Any, operator: Any, viewer: Any, fake_workers: FakeWorkerClient
) -> None:
    client = login(operator)
    body = {"target": "fast", "profiles": [{"A": [[1, 4]] * 3, "B": [[1, 4]] * 3}]}
    path = "/api/v1/models/adder/engines"
    assert login(viewer).post(path, {}, "application/json").status_code == 403

    answer = client.post(path, body, "application/json")

    assert answer.status_code == 202
    made = answer.json()
    assert (made["target"], made["state"], made["actor"]) == ("fast", "queued", "oscar")
    assert client.get(f"/api/v1/engines/{made['id']}").json()["profiles"] == body["profiles"]
    assert [row["id"] for row in client.get("/api/v1/engines?model=fast").json()] == [made["id"]]
    assert client.get("/api/v1/engines?state=odd").status_code == 400
    assert client.post(f"/api/v1/engines/{made['id']}/cancel").status_code == 202
    assert client.get("/api/v1/engines/99").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"profile": []}, 400, "There is no such field here"),
        ({"profiles": [{"A": [[1]]}]}, 400, "at least 3"),
        ({"precision": "fp64"}, 400, "not a valid choice"),
        ({"capabilities": ["x"]}, 400, "is none: write it as 8.9"),
        ({"version": 7}, 404, "no version 7"),
        ({"worker_id": "w9"}, 404, "no worker"),
    ],
)
def test_a_wrong_body_is_the_callers_mistake(
    model: Any, login: Any, operator: Any, body: Any, status: int, words: str
) -> None:
    answer = login(operator).post("/api/v1/models/adder/engines", body, "application/json")
    assert answer.status_code == status
    assert words in answer.content.decode()


@pytest.fixture
def talkative(fake_workers: FakeWorkerClient, monkeypatch: Any) -> FakeWorkerClient:
    """A worker that is a step further every time it is asked."""
    steps = iter([("running", 0.1), ("running", 0.7), ("succeeded", 1.0)])

    def progress(build_id: str) -> EngineProgress:
        state, fraction = next(steps)
        last = {"version": 1, "engine_bytes": 147620, "builder": "TensorRT-RTX 1.7"}
        more = last if state == "succeeded" else {}
        return EngineProgress(
            build_id, "gpu-1", "adder", "adder_trt", state, 0.0, "Building", fraction, **more
        )

    fake_workers.infos[0] = make_worker("gpu-1", started_at=0.0, devices=[make_device()])
    monkeypatch.setattr(fake_workers, "engine_progress", progress)
    monkeypatch.setattr(build_engine, "LOOK_EVERY_S", 0.0)
    return fake_workers


def test_the_command_builds_and_tells_of_it(
    model: Any, talkative: FakeWorkerClient, db: Any
) -> None:
    out = StringIO()
    call_command("build_engine", "adder", "--profile", "A=1x4,8x4,9x4;B=1x4,8x4,9x4", stdout=out)

    assert " 10 % Building\n 70 % Building\n" in out.getvalue()
    assert "adder_trt version 1: 147,620 bytes, built by TensorRT-RTX 1.7" in out.getvalue()
    assert talkative.calls[0].arguments["order"].profiles[0]["A"] == ([1, 4], [8, 4], [9, 4])


@pytest.mark.django_db
def test_the_command_fails_in_one_sentence(model: Any, fake_workers: FakeWorkerClient) -> None:
    with pytest.raises(CommandError, match="There is no model 'nothing'"):
        call_command("build_engine", "nothing")
    with pytest.raises(CommandError, match="write input=smallest,best,largest"):
        call_command("build_engine", "adder", "--profile", "A=1")
    out = StringIO()
    call_command("build_engine", "adder", "--no-wait", stdout=out)
    assert "was asked for" in out.getvalue()
    assert len(fake_workers.calls) == 1


def test_a_built_version_leads_to_its_build_until_another_takes_its_number(
    build: Any, tell: Any, repository: Path, login: Any, operator: Any
) -> None:
    row = build()
    tell(row, "succeeded", version=1)
    operations.follow()
    engine = repository / "adder_trt"
    (engine / "1").mkdir(parents=True)
    (engine / "1" / "model.plan").write_bytes(b"engine")
    client = login(operator)

    def page() -> str:
        return str(client.get("/models/adder_trt/versions/").content.decode())

    assert f'<a href="{row.get_absolute_url()}">built</a> by oscar' in page()
    Upload.objects.create(
        model="adder_trt", versions=[1], published_at=timezone.now(), actor=operator
    )
    assert row.get_absolute_url() not in page()
