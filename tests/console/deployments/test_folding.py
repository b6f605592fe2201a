"""The history has one line for what the start of a worker made of many models."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.deployments.choices import Action, DeploymentState, Trigger
from console.deployments.folding import fold
from console.deployments.models import Deployment

NOW = timezone.now()


def made(pk: int, model: str, seconds_ago: float = 0, **changes: Any) -> Deployment:
    """A load by the reconciler that went well, not stored."""
    values: dict[str, Any] = {
        "action": Action.LOAD,
        "state": DeploymentState.SUCCEEDED,
        "trigger": Trigger.RECONCILER,
        "reason": "The worker started",
        "worker_ids": ["w1"],
        "created_at": NOW - timedelta(seconds=seconds_ago),
        "finished_at": NOW - timedelta(seconds=seconds_ago) + timedelta(seconds=2),
    }
    return Deployment(pk=pk, model=model, **(values | changes))


def numbers(*rows: Deployment) -> list[list[int]]:
    return [[item.pk for item in line.items] for line in fold(rows)]


def test_loads_of_one_start_are_one_line_from_the_first_request_to_the_last_end() -> None:
    rows = [made(3, "dog"), made(2, "cat", 1), made(1, "ant", 5)]

    [line] = fold(rows)

    assert [item.pk for item in line.items] == [3, 2, 1]
    assert line.took == timedelta(seconds=7)
    assert line.workers == ["w1"]


def test_what_differs_stands_for_itself() -> None:
    for other in (
        {"trigger": Trigger.PERSON},
        {"state": DeploymentState.FAILED},
        {"state": DeploymentState.RUNNING},
        {"action": Action.UNLOAD},
        {"reason": "Wanted and not ready"},
        {"worker_ids": ["w2"]},
    ):
        assert numbers(made(2, "dog"), made(1, "cat", **other)) == [[2], [1]], other


def test_a_failure_among_them_does_not_part_the_others() -> None:
    failed = made(2, "cat", state=DeploymentState.FAILED)

    assert numbers(made(3, "dog"), failed, made(1, "ant")) == [[3, 1], [2]]


def test_two_starts_are_two_lines() -> None:
    assert numbers(made(2, "dog"), made(1, "cat", 3600)) == [[2], [1]]
    again = [made(4, "dog"), made(3, "cat"), made(2, "dog", 20), made(1, "cat", 20)]
    assert numbers(*again) == [[4, 3], [2, 1]]


@pytest.mark.django_db
def test_the_page_says_how_many_models_and_leads_to_each(login: Any, viewer: Any) -> None:
    for model, versions in (("ant", None), ("cat", [3])):
        row = made(0, model, versions=versions)
        row.pk = None
        row.save()

    page = login(viewer).get("/deployments/").content.decode()

    first, second = Deployment.objects.order_by("pk")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert f"{first.pk}–{second.pk} 2 models" in text
    assert f"{second.pk} cat, version 3 {first.pk} ant Load Done" in text
    assert "The worker started: w1" in text
    for row in (first, second):
        assert f'href="{row.get_absolute_url()}"' in page
        assert f'href="/models/{row.model}/"' in page
    # A link beside plain text would need more than its colour.
    assert '/models/cat/">cat, version 3</a>' in page
