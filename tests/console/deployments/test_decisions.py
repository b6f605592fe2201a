"""What the reconciler does, as plain functions: no clock, database or Redis."""

from __future__ import annotations

from typing import Any

import pytest

from console.deployments.decisions import LastLoad, Past, Step, Wanted, decide, delay_s, group
from tests.console.fakes import make_model, make_worker

NOW = 10_000.0
STARTED = NOW - 1000


def wanted(model: str = "cat", worker_id: str = "", **changes: Any) -> Wanted:
    values: dict[str, Any] = {
        "is_loaded": True,
        "versions": None,
        "changed_at": STARTED - 500,
        "answered": None,
    }
    return Wanted(model=model, worker_id=worker_id, **(values | changes))


def worker(worker_id: str = "gpu-1", *models: Any, **changes: Any) -> Any:
    return make_worker(worker_id, models=list(models), **({"started_at": STARTED} | changes))


def last(**changes: Any) -> LastLoad:
    values: dict[str, Any] = {
        "sent_at": NOW - 100,
        "is_open": False,
        "is_refused": False,
        "finished_at": NOW - 90,
    }
    return LastLoad(**(values | changes))


def run(wishes: list[Wanted], workers: list[Any], past: Past | None = None) -> list[Step]:
    return decide(wishes, workers, past or Past(), now=NOW)


def test_a_restarted_worker_gets_back_what_was_wanted() -> None:
    (step,) = run([wanted()], [worker()])

    assert (step.is_load, step.model, step.worker_id) == (True, "cat", "gpu-1")
    assert step.reason == "The worker started"


def test_what_is_served_is_left_alone() -> None:
    assert run([wanted()], [worker("gpu-1", make_model("cat"))]) == []


@pytest.mark.parametrize("state", ["lost", "draining", "starting", "stopped"])
def test_only_a_ready_worker_is_asked(state: str) -> None:
    assert run([wanted()], [worker(state=state)]) == []


def test_a_wish_for_every_worker_reaches_each() -> None:
    steps = run([wanted()], [worker("gpu-1"), worker("gpu-2"), worker("gpu-3", state="lost")])

    assert [step.worker_id for step in steps] == ["gpu-1", "gpu-2"]
    assert len(group(steps)) == 1


def test_a_row_for_one_worker_wins_over_the_row_for_all() -> None:
    wishes = [wanted(), wanted(worker_id="gpu-2", is_loaded=False)]

    steps = run(wishes, [worker("gpu-1"), worker("gpu-2")])

    assert [step.worker_id for step in steps] == ["gpu-1"]


@pytest.mark.parametrize("state", ["LOADING", "UNLOADING"])
def test_a_model_on_the_move_is_waited_for(state: str) -> None:
    assert run([wanted()], [worker("gpu-1", make_model("cat", state=state))]) == []


def test_a_model_with_an_open_deployment_is_waited_for() -> None:
    assert run([wanted()], [worker()], Past(open_models=frozenset({"cat"}))) == []


def test_a_result_is_given_time_to_show_in_the_heartbeat() -> None:
    past = Past(last={("gpu-1", "cat"): last(finished_at=NOW - 1)})

    assert run([wanted()], [worker()], past) == []


def test_a_load_that_the_worker_refused_is_not_repeated() -> None:
    failed = make_model("cat", state="UNAVAILABLE", reason="no such file")
    past = Past(last={("gpu-1", "cat"): last(is_refused=True)})

    assert run([wanted()], [worker("gpu-1", failed)], past) == []


def test_a_refused_load_is_tried_once_more_after_a_restart() -> None:
    past = Past(last={("gpu-1", "cat"): last(is_refused=True, sent_at=STARTED - 50)})

    assert len(run([wanted()], [worker()], past)) == 1


def test_what_crashes_the_worker_again_and_again_waits_longer_each_time() -> None:
    attempts = {("gpu-1", "cat"): [NOW - 30, NOW - 20, NOW - 10]}

    assert run([wanted()], [worker()], Past(attempts=attempts)) == []
    assert decide([wanted()], [worker()], Past(attempts=attempts), now=NOW + delay_s(3)) != []


def test_old_attempts_are_forgotten() -> None:
    past = Past(attempts={("gpu-1", "cat"): [NOW - 5000, NOW - 4000]})

    assert len(run([wanted()], [worker()], past)) == 1


def test_the_delay_doubles_up_to_a_limit() -> None:
    assert [delay_s(count) for count in (0, 1, 2, 3, 20)] == [0, 3, 6, 12, 600]


def test_what_a_client_unloaded_through_the_worker_stays_so() -> None:
    unloaded = make_model("cat", state="UNAVAILABLE", reason="unloaded")

    assert run([wanted()], [worker("gpu-1", unloaded)]) == []


def test_what_a_client_loaded_through_the_worker_stays_so() -> None:
    assert run([], [worker("gpu-1", make_model("dog"))]) == []


def test_missing_versions_are_loaded_by_number() -> None:
    (step,) = run([wanted(versions=(1, 2))], [worker("gpu-1", make_model("cat", "2"))])

    assert step.versions == (1, 2)


def test_a_worker_that_was_away_during_a_deployment_gets_it_afterwards() -> None:
    wish = wanted(changed_at=NOW - 60, answered=frozenset({"gpu-2"}))
    workers = [worker("gpu-1", make_model("cat")), worker("gpu-2", make_model("cat"))]

    (step,) = run([wish], workers)

    assert step.worker_id == "gpu-1"


def test_a_worker_that_was_away_during_an_unload_unloads_afterwards() -> None:
    wish = wanted(is_loaded=False, changed_at=NOW - 60, answered=frozenset())

    (step,) = run([wish], [worker("gpu-1", make_model("cat"))])

    assert step.is_load is False


def test_an_unload_that_was_carried_out_is_not_repeated() -> None:
    """Somebody loaded it again through the worker's own API."""
    wish = wanted(is_loaded=False, changed_at=NOW - 60, answered=frozenset({"gpu-1"}))

    assert run([wish], [worker("gpu-1", make_model("cat"))]) == []


def test_a_dead_model_process_is_brought_back() -> None:
    dead = make_model("cat", state="UNAVAILABLE", reason="the process died by SIGKILL")

    (step,) = run([wanted()], [worker("gpu-1", dead)])

    assert step.reason == "Wanted and not ready"
