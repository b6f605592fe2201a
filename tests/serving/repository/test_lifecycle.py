from __future__ import annotations

from typing import Any

import pytest

from serving.errors import NotFoundError, UnavailableError
from serving.repository.lifecycle import Lifecycle
from serving.repository.states import IndexEntry
from tests.serving.repository.fakes import FakeModel


@pytest.fixture
def seen() -> list[IndexEntry]:
    return []


@pytest.fixture
def lifecycle(seen: list[IndexEntry]) -> Lifecycle:
    return Lifecycle(seen.append)


def models(*versions: int, content: str = "") -> dict[int, Any]:
    return {version: FakeModel("m", version, content) for version in versions}


async def test_load_turns_loading_into_ready_and_tells_listeners(lifecycle, seen):
    lifecycle.begin_load("m", [1, 2])
    assert repr(lifecycle) == "<Lifecycle m:1 LOADING, m:2 LOADING>"

    replaced = lifecycle.finish_load("m", models(1, 2))

    assert replaced == []
    assert repr(lifecycle) == "<Lifecycle m:1 READY, m:2 READY>"
    assert [entry.state for entry in seen] == ["LOADING", "LOADING", "READY", "READY"]
    assert seen[-1].backend == "fake"


async def test_failed_and_unloaded_versions_still_tell_their_backend(lifecycle):
    lifecycle.begin_load("m", [1], "vllm")
    lifecycle.fail_load("m", {1: "its package is missing"})

    assert [entry.backend for entry in lifecycle.entries("m")] == ["vllm"]

    lifecycle.clear_failure("m")

    assert [entry.backend for entry in lifecycle.entries("m")] == ["vllm"]


async def test_request_without_version_gets_the_highest_ready_one(lifecycle):
    served = models(1, 10, 2)
    lifecycle.finish_load("m", served)

    assert lifecycle.resolve("m") is served[10]
    assert lifecycle.resolve("m", 2) is served[2]

    lifecycle.begin_unload("m", 10)

    assert lifecycle.resolve("m") is served[2]


async def test_served_version_stays_ready_while_its_successor_loads(lifecycle):
    old = models(1, content="old")
    new = models(1, content="new")
    lifecycle.finish_load("m", old)

    lifecycle.begin_load("m", [1])
    assert lifecycle.resolve("m") is old[1]
    assert repr(lifecycle) == "<Lifecycle m:1 READY>"

    assert lifecycle.finish_load("m", new) == [old[1]]
    assert lifecycle.resolve("m") is new[1]


async def test_failed_reload_keeps_what_served_and_failed_first_load_tells_why(lifecycle):
    served = models(1)
    lifecycle.finish_load("m", served)
    lifecycle.begin_load("m", [1, 2])

    lifecycle.fail_load("m", {1: "bad weights", 2: "bad weights"})

    assert lifecycle.resolve("m") is served[1]
    assert repr(lifecycle) == "<Lifecycle m:1 READY, m:2 UNAVAILABLE (bad weights)>"


async def test_unload_goes_over_unloading_to_unloaded(lifecycle):
    served = models(1)
    lifecycle.finish_load("m", served)

    assert lifecycle.begin_unload("m", 1) is served[1]
    assert repr(lifecycle) == "<Lifecycle m:1 UNLOADING>"

    lifecycle.finish_unload("m", 1, served[1])
    assert repr(lifecycle) == "<Lifecycle m:1 UNAVAILABLE (unloaded)>"


async def test_drain_that_ends_after_a_new_load_changes_nothing(lifecycle):
    old, new = models(1), models(1)
    lifecycle.finish_load("m", old)
    lifecycle.begin_unload("m", 1)
    lifecycle.begin_load("m", [1])
    lifecycle.finish_load("m", new)

    lifecycle.finish_unload("m", 1, old[1])

    assert repr(lifecycle) == "<Lifecycle m:1 READY>"


@pytest.mark.parametrize(
    ("name", "version", "error", "words"),
    [
        ("nope", -1, NotFoundError, "'nope' is not found"),
        ("m", 7, NotFoundError, "version 7 is not found"),
        ("m", 2, UnavailableError, "version 2 is not at ready state: LOADING"),
        ("gone", -1, NotFoundError, "no available versions"),
        ("gone", 1, UnavailableError, "UNAVAILABLE (unloaded)"),
        ("bad", -1, NotFoundError, "no available versions (config.pbtxt:1:1: no)"),
        ("slow", -1, UnavailableError, "still loading"),
    ],
)
async def test_request_for_a_model_that_cannot_answer_says_why(
    lifecycle, name, version, error, words
):
    lifecycle.finish_load("m", models(1))
    lifecycle.begin_load("m", [2])
    lifecycle.begin_load("slow", [1])
    gone = models(1)
    lifecycle.finish_load("gone", gone)
    lifecycle.begin_unload("gone", 1)
    lifecycle.finish_unload("gone", 1, gone[1])
    lifecycle.fail_model("bad", "config.pbtxt:1:1: no")

    with pytest.raises(error) as caught:
        lifecycle.resolve(name, version)
    assert words in caught.value.message


async def test_strict_readiness_overlooks_unloaded_but_not_failed_or_sick_models(lifecycle):
    assert lifecycle.is_serving_everything()
    served = models(1)
    lifecycle.begin_load("m", [1])
    assert not lifecycle.is_serving_everything()
    lifecycle.finish_load("m", served)
    assert lifecycle.is_serving_everything()
    served[1].is_ready = False
    assert not lifecycle.is_serving_everything()
    served[1].is_ready = True

    lifecycle.fail_load("other", {1: "broken"})
    assert not lifecycle.is_serving_everything()
    lifecycle.clear_failure("other")
    assert lifecycle.is_serving_everything()

    lifecycle.begin_unload("m", 1)
    assert lifecycle.is_serving_everything()
    lifecycle.fail_model("m", "broken config")
    assert not lifecycle.is_serving_everything()


async def test_forget_drops_only_models_of_which_nothing_lives(lifecycle):
    lifecycle.finish_load("m", models(1))
    lifecycle.fail_load("n", {1: "broken"})

    lifecycle.forget("m")
    lifecycle.forget("n")

    assert repr(lifecycle) == "<Lifecycle m:1 READY>"
