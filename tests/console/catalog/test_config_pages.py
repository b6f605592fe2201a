"""The Config tab: checks while typing, saving, lost updates, revisions; and the same by REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.repository.models import ConfigRevision
from console.repository.services import config_sha256
from tests.console.catalog.conftest import CONFIG, add_model
from tests.console.fakes import FakeWorkerClient

pytestmark = pytest.mark.django_db

WRONG = CONFIG.replace("max_batch_size: 8", "max_batch_size: -1")
OTHER = CONFIG.replace("max_batch_size: 8", "max_batch_size: 4")


def text_of(response: Any) -> str:
    return str(response.content.decode())


def saved(echo: Path) -> str:
    return (echo / "config.pbtxt").read_text(encoding="utf-8")


def post(client: Client, text: str, *, seen: str = CONFIG, action: str = "save") -> Any:
    data = {"text": text, "expected_sha256": config_sha256(seen), "action": action}
    return client.post("/models/echo/config/", data)


def test_shows_the_text_its_effective_form_and_what_the_model_file_says(
    echo: Path, login: Any, viewer: Any
) -> None:
    text = text_of(login(viewer).get("/models/echo/config/"))

    assert "# Gives back what it gets." in text
    assert "FP32 [-1, 2]" in text
    assert 'class="origin origin--model">Model<' in text
    assert 'class="origin origin--file">File<' in text
    assert 'class="origin origin--default">Default<' in text
    assert "readonly" in text


def test_a_check_finds_the_line_and_saves_nothing(echo: Path, login: Any, viewer: Any) -> None:
    response = login(viewer).post("/models/echo/config/check/", {"text": WRONG})

    assert response.status_code == 200
    assert 'data-severity="error" data-line="4"' in text_of(response)
    assert "diff-line--added" in text_of(response)
    assert saved(echo) == CONFIG


@pytest.mark.parametrize(
    "text",
    [
        'input { name: "x" data_type: 99 dims: 2 format: 9 }',
        "instance_group { kind: 9 }",
        "dynamic_batching { default_queue_policy { timeout_action: 7 } }",
    ],
)
def test_a_number_without_a_name_is_a_finding_and_no_crash(
    echo: Path, login: Any, operator: Any, text: str
) -> None:
    response = login(operator).post("/models/echo/config/check/", {"text": CONFIG + text})

    assert response.status_code == 200
    assert "is not a value of" in response.content.decode()


def test_only_who_may_edit_is_offered_a_fix(
    echo: Path, login: Any, operator: Any, viewer: Any
) -> None:
    for user, offered in ((operator, True), (viewer, False)):
        page = login(user).post("/models/echo/config/check/", {"text": WRONG}).content.decode()
        assert ("data-fix=" in page) is offered


def test_an_operator_saves(echo: Path, login: Any, operator: Any) -> None:
    response = post(login(operator), OTHER)

    assert response.status_code == 302
    assert saved(echo) == OTHER
    newest = ConfigRevision.objects.filter(model="echo").first()
    assert newest is not None
    assert (newest.text, newest.actor) == (OTHER, operator)


def test_save_and_load_goes_to_the_deployment(
    served: FakeWorkerClient, echo: Path, login: Any, operator: Any
) -> None:
    response = post(login(operator), OTHER, action="save_load")

    assert response.url.startswith("/deployments/")


def test_errors_refuse_the_save_and_the_typed_text_stays(
    echo: Path, login: Any, operator: Any
) -> None:
    response = post(login(operator), WRONG)

    assert response.status_code == 422
    assert "max_batch_size: -1" in text_of(response)
    assert "The config was not saved: line 4" in text_of(response)
    assert saved(echo) == CONFIG


def test_a_lost_update_shows_both_texts_and_can_be_resolved(
    echo: Path, login: Any, operator: Any
) -> None:
    client = login(operator)
    (echo / "config.pbtxt").write_text(OTHER, encoding="utf-8")
    mine = CONFIG + "# mine\n"

    response = post(client, mine)

    assert response.status_code == 409
    text = text_of(response)
    assert "somebody changed this config meanwhile" in text
    assert "# mine" in text
    assert "max_batch_size: 4" in text
    assert config_sha256(OTHER) in text
    assert saved(echo) == OTHER

    assert post(client, mine, seen=OTHER).status_code == 302
    assert saved(echo) == mine


def test_browser_line_breaks_do_not_reach_the_file(echo: Path, login: Any, operator: Any) -> None:
    post(login(operator), OTHER.replace("\n", "\r\n"))

    assert saved(echo) == OTHER


def test_a_revision_shows_what_restoring_changes_and_restores(
    echo: Path, login: Any, operator: Any
) -> None:
    client = login(operator)
    post(client, OTHER)
    first = ConfigRevision.objects.filter(model="echo").order_by("number").first()
    assert first is not None
    address = f"/models/echo/config/revisions/{first.number}/"

    assert "diff-line--added" in text_of(client.get(address))

    client.post(address, {"expected_sha256": config_sha256(OTHER), "action": "save"})
    assert saved(echo) == CONFIG


def test_a_text_that_no_file_may_hold_is_refused_with_a_sentence(
    echo: Path, login: Any, operator: Any
) -> None:
    client = login(operator)

    response = client.post("/models/echo/config/", {"text": "name: \0"}, follow=True)
    assert "The text was not saved. Null characters are not allowed." in text_of(response)

    checked = client.post("/models/echo/config/check/", {"text": "#" * ((2 << 20) + 1)})
    assert checked.status_code == 400
    assert "longer than 2 MiB" in text_of(checked)
    assert saved(echo) == CONFIG


def test_a_revision_number_beyond_reason_is_a_404(echo: Path, login: Any, viewer: Any) -> None:
    address = f"/models/echo/config/revisions/{10**30}/"

    assert login(viewer).get(address).status_code == 404


def test_a_viewer_cannot_restore(echo: Path, login: Any, viewer: Any, operator: Any) -> None:
    post(login(operator), OTHER)

    assert login(viewer).post("/models/echo/config/revisions/1/").status_code == 403
    assert login(viewer).get("/models/echo/config/revisions/99/").status_code == 404


def test_a_model_without_config_shows_what_the_server_completes(
    repository: Path, login: Any, operator: Any
) -> None:
    directory = add_model(repository)
    (directory / "config.pbtxt").unlink()

    text = text_of(login(operator).get("/models/echo/config/"))

    assert "This model has no config.pbtxt yet" in text
    assert "onnxruntime_onnx" in text


def test_the_effective_config_can_be_downloaded(echo: Path, login: Any, viewer: Any) -> None:
    response = login(viewer).get("/models/echo/config/effective/")

    assert response["Content-Disposition"] == 'attachment; filename="config.pbtxt"'
    assert 'name: "echo"' in text_of(response)


class TestRest:
    def test_lists_and_reads_models(
        self, served: FakeWorkerClient, login: Any, viewer: Any
    ) -> None:
        client = login(viewer)

        [row] = client.get("/api/v1/models").json()
        assert (row["name"], row["state"], row["served_versions"]) == ("echo", "ready", ["2"])
        detail = client.get("/api/v1/models/echo").json()
        assert detail["placements"][0]["worker_id"] == "gpu-1"

    def test_checks_a_text(self, echo: Path, login: Any, viewer: Any) -> None:
        body = (
            login(viewer)
            .post(
                "/api/v1/models/echo/check-config",
                {"text": WRONG},
                content_type="application/json",
            )
            .json()
        )

        assert body["is_valid"] is False
        assert body["findings"][0]["line"] == 4
        assert body["findings"][0]["repair"]["kind"] == "replace"

    def test_explains_requests(self, echo: Path, login: Any, viewer: Any) -> None:
        body = login(viewer).get("/api/v1/models/echo/explain").json()

        [tensor] = body["inputs"]
        assert (tensor["name"], tensor["datatype"]) == ("x", "FP32")
        assert "/v2/models/echo/infer" in body["curl"]

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("get", "/api/v1/models"),
            ("get", "/api/v1/models/echo"),
            ("post", "/api/v1/models/echo/check-config"),
            ("get", "/api/v1/models/echo/explain"),
        ],
    )
    def test_needs_a_role(
        self, echo: Path, login: Any, stranger: Any, method: str, path: str
    ) -> None:
        assert getattr(Client(), method)(path).status_code in (401, 403)
        assert getattr(login(stranger), method)(path).status_code == 403

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/models/nothing/",
            "/api/v1/models/nothing/explain/",
        ],
    )
    def test_an_unknown_model_is_a_404_with_a_sentence(
        self, echo: Path, login: Any, viewer: Any, path: str
    ) -> None:
        response = login(viewer).get(path)

        assert response.status_code == 404
        assert "nothing" in response.json()["error"]["message"]
