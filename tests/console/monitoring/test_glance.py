"""The counts of the menu and the number of problems in the tab."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse

from tests.console.fakes import FakeWorkerClient, make_model, make_worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _afresh() -> None:
    cache.clear()


@pytest.fixture
def fleet(fake_workers: FakeWorkerClient) -> FakeWorkerClient:
    failed = make_model("resnet", "3", "UNAVAILABLE", reason="engine built for compute 8.6")
    fake_workers.infos = [make_worker("w", models=[make_model("bert", "2"), failed])]
    return fake_workers


def test_menu_counts_models_and_workers(fleet: FakeWorkerClient, viewer: Any, login: Any) -> None:
    page = login(viewer).get("/account/").content.decode()

    assert '<span class="count" data-count="models">2</span>' in page
    assert '<span class="count" data-count="workers">1</span>' in page
    assert '<span class="count" data-count="deployments"></span>' in page


def test_open_page_learns_counts_and_problems(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    answer = login(viewer).get(reverse("monitoring:glance"))

    assert answer.json() == {
        "problems": 1,
        "counts": {"models": 2, "deployments": 0, "workers": 1},
    }


def test_counts_are_read_once_in_a_few_seconds(
    fleet: FakeWorkerClient, viewer: Any, login: Any
) -> None:
    client = login(viewer)
    client.get("/account/")
    fleet.infos = []

    assert 'data-count="workers">1<' in client.get("/account/").content.decode()


def test_stranger_and_nobody_learn_nothing(
    fleet: FakeWorkerClient, stranger: Any, login: Any, client: Any
) -> None:
    address = reverse("monitoring:glance")

    assert login(stranger).get(address).status_code == 403
    assert client.get(address).status_code == 302


def test_unavailable_model_is_one_problem_though_its_load_failed_too(
    fleet: FakeWorkerClient, operator: Any, login: Any
) -> None:
    from console.deployments.models import Deployment

    client = login(operator)
    for model in ("resnet", "other"):
        Deployment.objects.create(model=model, action="load", state="failed", error="w: it broke")

    page = client.get("/?part=live").content.decode()

    assert page.count("it broke") == 1
    assert 'data-problems="2"' in page
