"""How the reports of several workers become one state a model."""

from __future__ import annotations

import pytest

from console.catalog.observed import observe, worst
from tests.console.fakes import make_model, make_worker


def test_a_model_that_every_worker_serves_is_ready() -> None:
    workers = [
        make_worker("a", models=[make_model("m", "1", instances=2), make_model("m", "2")]),
        make_worker("b", models=[make_model("m", "2")]),
    ]

    seen = observe(workers)["m"]

    assert seen.state == "ready"
    assert seen.served_versions == ["1", "2"]
    assert seen.instances == [("a", 3), ("b", 1)]
    assert seen.reasons == []


def test_one_failed_version_makes_the_model_unavailable_and_says_why() -> None:
    failed = make_model("m", "3", "UNAVAILABLE", reason="engine built for 8.6, device is 9.0")
    worker = make_worker("gpu-1", models=[make_model("m", "2"), failed])

    seen = observe([worker])["m"]

    assert seen.state == "unavailable"
    assert seen.served_versions == ["2"]
    assert seen.failed_versions == ["3"]
    assert seen.reasons == ["v3 on gpu-1: engine built for 8.6, device is 9.0"]


def test_an_unloaded_version_is_not_a_fault() -> None:
    unloaded = make_model("m", "1", "UNAVAILABLE", reason="unloaded")

    seen = observe([make_worker(models=[unloaded])])["m"]

    assert seen.state == "not_served"
    assert seen.reasons == []
    assert seen.worker_ids == []


def test_models_of_a_lost_worker_are_lost_not_green() -> None:
    lost = make_worker("gpu-2", state="lost", models=[make_model("m")])

    seen = observe([lost])["m"]

    assert seen.state == "lost"
    assert seen.served_versions == []
    assert seen.reasons == ["v1 on gpu-2: the worker's heartbeat expired"]


def test_a_worker_that_stopped_in_order_is_no_fault_of_a_model() -> None:
    stopped = make_worker("gpu-2", state="stopped", models=[make_model("m")])

    seen = observe([stopped])["m"]

    assert (seen.state, seen.served_versions, seen.reasons) == ("not_served", [], [])


def test_a_model_nobody_asked_for_is_not_served() -> None:
    never = make_model("m", "", "", backend="", instances=0)

    assert observe([make_worker(models=[never])])["m"].state == "not_served"


def test_versions_are_ordered_as_numbers() -> None:
    worker = make_worker(models=[make_model("m", "10"), make_model("m", "9")])

    assert observe([worker])["m"].served_versions == ["9", "10"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["ready", "unavailable"], "unavailable"),
        (["ready", "loading"], "loading"),
        (["not_served", "ready"], "ready"),
        ([], "not_served"),
    ],
)
def test_the_state_that_needs_a_look_wins(states: list[str], expected: str) -> None:
    assert worst(states) == expected
