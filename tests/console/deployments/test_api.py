"""REST: load, unload, deployments, desired state, workers, schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import ApiToken
from console.deployments import operations, services
from console.deployments.models import Deployment
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.repository.packing import write_model


@pytest.fixture
def model(repository: Path, fake_workers: FakeWorkerClient) -> Path:
    fake_workers.infos = [make_worker("gpu-1", models=[make_model("cat", "2")])]
    return write_model(repository, "cat", versions=(1, 2))


def send(client: Client, method: str, path: str, body: Any = None) -> Any:
    content = b"" if body is None else json.dumps(body).encode()
    return client.generic(method, f"/api/v1/{path}", content, content_type="application/json")


@pytest.fixture
def failed(model: Path, operator: Any, fake_workers: FakeWorkerClient) -> Deployment:
    workers, fake_workers.infos = fake_workers.infos, []
    deployment = services.load_model(actor=operator, model="cat")
    operations.dispatch(deployment.pk)
    fake_workers.infos = workers
    deployment.refresh_from_db()
    return deployment


@pytest.mark.parametrize(
    "path", ["deployments", "desired", "workers", "workers/gpu-1", "schema", "docs/"]
)
def test_reading_needs_the_role_viewer(
    model: Path, login: Any, viewer: Any, stranger: Any, path: str
) -> None:
    assert Client().get(f"/api/v1/{path}").status_code == 401
    assert login(stranger).get(f"/api/v1/{path}").status_code == 403
    assert login(viewer).get(f"/api/v1/{path}").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["models/cat/load", "models/cat/unload", "deployments/1/rollback", "deployments/1/retry"],
)
def test_acting_needs_the_role_operator(model: Path, login: Any, viewer: Any, path: str) -> None:
    assert send(Client(), "POST", path, {}).status_code == 401
    assert send(login(viewer), "POST", path, {}).status_code == 403


def test_load_answers_with_the_deployment_to_follow(
    model: Path, login: Any, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    client = login(operator)

    with committed():
        started = send(client, "POST", "models/cat/load", {"versions": [1], "reason": "old one"})

    row = started.json()
    assert (started.status_code, row["state"], row["versions"]) == (202, "queued", [1])
    detail = send(client, "GET", f"deployments/{row['id']}").json()
    assert [phase["label"] for phase in detail["phases"]] == ["Requested", "Loading gpu-1", "Live"]
    assert detail["targets"][0]["worker_id"] == "gpu-1"
    assert fake_workers.calls[0].arguments["versions"] == [1]
    assert send(client, "GET", "desired").json()[0]["versions"] == [1]


@pytest.mark.parametrize(
    ("path", "body"),
    [("unload", {"versions": [2]}), ("load", {"version": 2}), ("load", {"workers": ["gpu-1"]})],
)
def test_a_field_that_is_not_known_is_refused_not_skipped(
    model: Path, login: Any, operator: Any, path: str, body: dict[str, Any]
) -> None:
    answer = send(login(operator), "POST", f"models/cat/{path}", body)

    assert answer.status_code == 400
    [name] = body
    assert "There is no such field" in answer.json()["error"]["fields"][name][0]
    assert not Deployment.objects.exists()


def test_unload_of_one_version(
    model: Path, login: Any, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    with committed():
        send(login(operator), "POST", "models/cat/unload", {"version": 2})

    assert fake_workers.calls[0].arguments == {"version": 2, "unload_dependents": False}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("models/dog/load", {}, 404), ("models/cat/load", {"versions": [9]}, 404),
     ("models/cat/load", {"versions": []}, 400), ("models/cat/load", {"versions": "1"}, 400),
     ("models/cat/load", {"versions": [-1]}, 400), ("models/cat/load", {"worker_ids": ["x"]}, 404),
     ("models/cat/load", [], 400), ("models/cat/unload", {"version": "two"}, 400),
     ("models/cat/unload", {"version": 1}, 404),
     ("models/cat/unload", {"unload_dependents": 7}, 400),
     ("deployments/999/retry", {}, 404), ("deployments/999/rollback", {}, 404)],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(
    model: Path, login: Any, operator: Any, path: str, body: Any, status: int
) -> None:
    answer = send(login(operator), "POST", path, body)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_retry_and_roll_back_start_new_deployments(
    failed: Deployment, login: Any, operator: Any
) -> None:
    client = login(operator)

    again = send(client, "POST", f"deployments/{failed.pk}/retry")
    back = send(client, "POST", f"deployments/{failed.pk}/rollback")

    assert (again.status_code, again.json()["retry_of"]) == (202, failed.pk)
    assert (back.status_code, back.json()["action"]) == (202, "rollback")


def test_history_is_filtered_and_paged(failed: Deployment, login: Any, operator: Any) -> None:
    client = login(operator)
    send(client, "POST", f"deployments/{failed.pk}/retry")

    def ids(query: str) -> list[int]:
        return [row["id"] for row in send(client, "GET", f"deployments?{query}").json()]

    assert ids("state=failed") == [failed.pk]
    assert ids("state=open") == [failed.pk + 1]
    assert ids("model=dog") == []
    assert ids("limit=1") == [failed.pk + 1]
    assert ids(f"before={failed.pk + 1}") == [failed.pk]


@pytest.mark.parametrize(
    "query", ["state=x", "action=x", "limit=0", "limit=501", "limit=a", "before=-1", "before=x"]
)
def test_a_bad_filter_is_a_400_with_its_name(
    model: Path, login: Any, viewer: Any, query: str
) -> None:
    answer = send(login(viewer), "GET", f"deployments?{query}")

    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]["fields"]


def test_a_token_works_within_its_scope(model: Path, operator: Any) -> None:
    _, deploy = ApiToken.objects.create(user=operator, name="ci", scope="deploy")
    _, read = ApiToken.objects.create(user=operator, name="look", scope="read")

    def load(token: str) -> Any:
        return Client().post(
            "/api/v1/models/cat/load", {}, content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip

    assert load(deploy).status_code == 202
    assert load(read).status_code == 403
    assert load("conch_nonsense").status_code == 401
    assert Deployment.objects.count() == 1


def test_workers_that_cannot_be_read_are_a_503(
    model: Path, login: Any, viewer: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.error = ConnectionError("Redis is away")

    answer = send(login(viewer), "GET", "workers")

    assert answer.status_code == 503
    assert "Redis is away" in answer.json()["error"]["message"]


def test_a_worker_is_described(model: Path, login: Any, viewer: Any) -> None:
    row = send(login(viewer), "GET", "workers/gpu-1").json()

    assert row["models"][0]["name"] == "cat"
    assert send(login(viewer), "GET", "workers/gpu-9").status_code == 404


def test_the_schema_covers_every_route_of_the_api(model: Path, login: Any, viewer: Any) -> None:
    answer = login(viewer).get("/api/v1/schema?format=json")

    paths = json.loads(answer.content)["paths"]
    assert {"/api/v1/uploads/{upload_id}/content", "/api/v1/models/{model}/load",
            "/api/v1/deployments/{deployment_id}/rollback"} <= set(paths)  # fmt: skip


def test_the_interactive_page_has_no_inline_script(model: Path, login: Any, viewer: Any) -> None:
    client = login(viewer)
    page = client.get("/api/v1/docs/").content.decode()

    assert "<script>" not in page
    assert "<style" not in page
    assert (
        client.get("/api/v1/docs/?script=")
        .headers["Content-Type"]
        .startswith("application/javascript")
    )
