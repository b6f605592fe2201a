"""Pages of deployments: who may, what they show, what they do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.deployments import operations, services
from console.deployments.models import Deployment
from console.repository import services as repository_services
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.repository.packing import CONFIG, write_model


@pytest.fixture
def model(repository: Path) -> Path:
    return write_model(repository, "cat", versions=(1, 2))


@pytest.fixture
def failed(model: Path, operator: Any) -> Deployment:
    deployment = services.load_model(actor=operator, model="cat", reason="first try")
    operations.dispatch(deployment.pk)
    deployment.refresh_from_db()
    return deployment


def text_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def test_reading_needs_the_role_viewer(
    failed: Deployment, login: Any, viewer: Any, stranger: Any
) -> None:
    for path in ("/deployments/", failed.get_absolute_url()):
        assert Client().get(path).status_code == 302
        assert login(stranger).get(path).status_code == 403
        assert login(viewer).get(path).status_code == 200
    assert login(viewer).get("/deployments/999/").status_code == 404


@pytest.mark.parametrize("deed", ["retry", "rollback"])
def test_acting_needs_the_role_operator(
    failed: Deployment, login: Any, viewer: Any, operator: Any, deed: str
) -> None:
    url = f"{failed.get_absolute_url()}{deed}/"

    assert Client().post(url).status_code == 302
    assert login(viewer).post(url).status_code == 403
    assert login(operator).get(url).status_code == 405
    assert login(operator).post(url).url == f"/deployments/{failed.pk + 1}/"


def test_a_failed_deployment_shows_the_reason_and_the_way_on(
    failed: Deployment, login: Any, operator: Any, viewer: Any
) -> None:
    text = text_of(login(operator).get(failed.get_absolute_url()))

    assert "No worker is connected" in text
    assert "first try" in text
    assert "Retry" in text
    assert "Retry" not in text_of(login(viewer).get(failed.get_absolute_url()))


def test_a_running_deployment_refreshes_itself_and_then_stops(
    model: Path, operator: Any, login: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1", models=[make_model("cat", "2")])]
    with committed():
        deployment = services.load_model(actor=operator, model="cat")
    client = login(operator)

    page = client.get(deployment.get_absolute_url()).content.decode()
    assert 'hx-trigger="every 1s"' in page
    assert "Roll back" not in page.split("<dialog")[0]

    Deployment.objects.update(state="succeeded")
    fragment = client.get(deployment.get_absolute_url(), headers={"HX-Target": "deployment"})
    assert "hx-trigger" not in fragment.content.decode()
    assert "<html" not in fragment.content.decode()


def test_the_config_diff_is_shown(
    model: Path, operator: Any, login: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    services.load_model(actor=operator, model="cat")
    Deployment.objects.update(state="succeeded")
    text = CONFIG.replace('"ident"', '"cat"').replace("max_batch_size: 4", "max_batch_size: 2")
    repository_services.save_config(actor=operator, model="cat", text=text, load=True)

    page = text_of(login(operator).get(Deployment.objects.first().get_absolute_url()))

    assert "r1 → r2" in page
    assert "max_batch_size: 2" in page


def test_the_history_filters_in_the_url(failed: Deployment, login: Any, viewer: Any) -> None:
    client = login(viewer)

    assert "first try" not in text_of(client.get("/deployments/?q=dog"))
    assert "No deployment matches" in text_of(client.get("/deployments/?action=unload"))
    assert "No worker is connected" in text_of(client.get("/deployments/?state=failed&q=oscar"))
    assert client.get("/deployments/?state=nonsense&page=x").status_code == 200


def test_an_empty_history_says_what_will_be_here(db: None, login: Any, viewer: Any) -> None:
    assert "Nothing has been loaded" in text_of(login(viewer).get("/deployments/"))


def test_the_history_takes_few_queries(
    failed: Deployment, operator: Any, login: Any, viewer: Any,
    django_assert_max_num_queries: Any,
) -> None:  # fmt: skip
    for _ in range(5):
        services.retry(actor=operator, deployment=failed)
    client = login(viewer)

    with django_assert_max_num_queries(8):
        client.get("/deployments/")


def test_a_name_from_outside_is_escaped(failed: Deployment, login: Any, viewer: Any) -> None:
    Deployment.objects.update(error="<img src=x onerror=alert(1)>", reason="<b>x</b>")
    client = login(viewer)

    for path in ("/deployments/", failed.get_absolute_url()):
        assert b"<img src=x" not in client.get(path).content
        assert b"<b>x" not in client.get(path).content


def test_deeds_of_people_are_found_among_those_of_the_system(
    failed: Deployment, login: Any, viewer: Any
) -> None:
    services.load_model(actor=None, model="cat", reason="The worker started")
    client = login(viewer)

    def reasons(query: str) -> list[str]:
        page = client.get(f"/deployments/?who={query}").context["page"]
        return [item.reason for item in page]

    assert reasons("people") == ["first try"]
    assert reasons("system") == ["The worker started"]
    assert len(reasons("")) == len(reasons("nonsense")) == 2
