"""Deployments from the wish to the result, with fake workers and real files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from console.core.models import AuditEntry
from console.deployments import operations, selectors, services
from console.deployments.choices import DeploymentState
from console.deployments.models import Deployment, DeploymentTarget
from serving.errors import InvalidArgumentError, NotFoundError, UnavailableError
from tests.console.deployments.acting import answer, desired, sent, serve
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from workers.client import WorkerError


def test_a_load_is_sent_to_every_connected_worker(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1"), make_worker("gpu-2"),
                          make_worker("gpu-3", state="lost")]  # fmt: skip

    deployment = load(reason="try")

    assert sent(fake_workers) == [("load", "gpu-1", None), ("load", "gpu-2", None)]
    assert (deployment.state, deployment.reason) == ("running", "try")
    assert desired() == [("", "loaded", None)]


def test_it_succeeds_when_every_worker_has_answered(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1"), make_worker("gpu-2")]
    deployment = load()

    answer(fake_workers)

    deployment.refresh_from_db()
    assert deployment.state == DeploymentState.SUCCEEDED
    assert [target.ready_versions for target in deployment.targets.all()] == [["2"], ["2"]]
    assert AuditEntry.objects.filter(action="load succeeded", target="cat").exists()


def test_a_worker_that_refuses_fails_it_with_its_own_words(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    deployment = load()

    answer(fake_workers, error="load failed for model 'cat': version 2: no such file")

    deployment.refresh_from_db()
    assert deployment.state == DeploymentState.FAILED
    assert deployment.error == "gpu-1: load failed for model 'cat': version 2: no such file"
    assert desired() == [("", "loaded", None)]


def test_without_a_worker_it_fails_and_stays_wanted(model: Path, load: Any) -> None:
    deployment = load()

    assert deployment.state == DeploymentState.FAILED
    assert "none has ever connected" in deployment.error
    assert desired() == [("", "loaded", None)]


def test_a_worker_that_is_lost_meanwhile_ends_the_wait(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    deployment = load()
    fake_workers.infos = [make_worker("gpu-1", state="lost")]

    operations.follow()

    deployment.refresh_from_db()
    assert deployment.error == "gpu-1: Worker gpu-1 was lost before it answered."


def test_a_restart_of_the_worker_ends_the_wait_after_a_grace(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    load()
    target = DeploymentTarget.objects.select_related("deployment").get()
    restarted = make_worker("gpu-1", started_at=target.sent_at.timestamp() + 1)

    assert operations.lost_reason(target, restarted, target.sent_at + timedelta(seconds=5)) == ""
    late = operations.lost_reason(target, restarted, target.sent_at + timedelta(seconds=60))
    assert late == "Worker gpu-1 was restarted before it answered."


def test_the_deadline_ends_the_wait(
    model: Path, load: Any, fake_workers: FakeWorkerClient, settings: Any
) -> None:
    settings.CONCH_OPERATION_SECONDS = 30
    fake_workers.infos = [make_worker("gpu-1")]
    load()
    target = DeploymentTarget.objects.select_related("deployment").get()

    reason = operations.lost_reason(
        target, fake_workers.infos[0], timezone.now() + timedelta(seconds=31)
    )

    assert reason == "Worker gpu-1 did not answer within 30 s."


def test_named_workers_get_a_row_of_their_own(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1"), make_worker("gpu-2")]
    load()

    load(worker_ids=["gpu-2"], versions=[1])

    assert sent(fake_workers)[-1] == ("load", "gpu-2", [1])
    assert desired() == [("", "loaded", None), ("gpu-2", "loaded", [1])]


def test_a_named_worker_that_is_lost_is_not_sent_anything(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1", state="lost")]

    deployment = load(worker_ids=["gpu-1"])

    assert fake_workers.calls == []
    assert (deployment.state, deployment.error) == ("failed", "gpu-1: Worker gpu-1 is lost.")


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"model": "dog"}, NotFoundError, "no model 'dog'"),
        ({"model": "../x"}, NotFoundError, "cannot be a model name"),
        ({"versions": [7]}, NotFoundError, "no version 7"),
        ({"versions": []}, InvalidArgumentError, "at least one version"),
        ({"worker_ids": ["gpu-9"]}, NotFoundError, "Known workers: gpu-1"),
        ({"worker_ids": []}, InvalidArgumentError, "at least one worker"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(
    model: Path, operator: Any, fake_workers: FakeWorkerClient, changes: Any, error: Any, words: str
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]

    with pytest.raises(error, match=words):
        services.load_model(actor=operator, **({"model": "cat"} | changes))

    assert not Deployment.objects.exists()


def test_naming_workers_while_the_registry_is_away_says_so(
    model: Path, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.error = ConnectionError("Redis is away")

    with pytest.raises(UnavailableError, match="Redis is away"):
        services.load_model(actor=operator, model="cat", worker_ids=["gpu-1"])


def test_a_worker_error_on_sending_fails_that_worker_only(
    model: Path, load: Any, fake_workers: FakeWorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise WorkerError("the broker is away")

    monkeypatch.setattr(fake_workers, "load_model", refuse)
    fake_workers.infos = [make_worker("gpu-1")]

    assert load().error == "gpu-1: the broker is away"


def test_a_fault_of_ours_ends_as_errored_with_a_traceback(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.error = ZeroDivisionError("ours")

    deployment = load()

    assert deployment.state == DeploymentState.ERRORED
    assert "ZeroDivisionError" in deployment.traceback


def test_unload_of_a_model(
    model: Path, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "2")

    with committed():
        services.unload_model(actor=operator, model="cat")

    assert sent(fake_workers) == [("unload", "gpu-1", None)]
    assert desired() == [("", "unloaded", None)]


def test_unload_of_one_version_keeps_the_others_wanted(
    model: Path, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "1", "2")

    with committed():
        services.unload_model(actor=operator, model="cat", version=1)

    assert sent(fake_workers) == [("unload", "gpu-1", 1)]
    assert desired() == [("", "loaded", [2])]


def test_unload_of_the_last_version_is_unload_of_the_model(
    model: Path, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "2")

    services.unload_model(actor=operator, model="cat", version=2)

    assert desired() == [("", "unloaded", None)]


def test_unload_of_what_is_not_served_is_refused(
    model: Path, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "2")

    with pytest.raises(NotFoundError, match="Version 1 of 'cat' is not served"):
        services.unload_model(actor=operator, model="cat", version=1)
    with pytest.raises(NotFoundError, match="neither in the repository nor served"):
        services.unload_model(actor=operator, model="dog")


def test_unload_without_workers_is_done_at_once(
    model: Path, operator: Any, committed: Committed
) -> None:
    with committed():
        deployment = services.unload_model(actor=operator, model="cat")

    deployment.refresh_from_db()
    assert deployment.state == DeploymentState.SUCCEEDED


def test_the_phases_tell_the_whole_road(
    model: Path, load: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    deployment = load()
    running = [(phase.label, phase.state) for phase in selectors.phases(deployment)]
    answer(fake_workers)
    deployment.refresh_from_db()

    assert running == [("Requested", "done"), ("Loading gpu-1", "running"), ("Live", "pending")]
    assert [phase.state for phase in selectors.phases(deployment)] == ["done", "done", "done"]


def test_a_refused_attempt_is_in_the_audit_log_too(model: Path, operator: Any) -> None:
    with pytest.raises(NotFoundError):
        services.load_model(actor=operator, model="cat", versions=[9])

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.actor) == ("load model refused", "cat", operator)
    assert "no version 9" in entry.detail["error"]


@pytest.mark.django_db(transaction=True)
def test_redis_is_never_asked_while_others_wait_for_the_database(
    model: Path, operator: Any, fake_workers: FakeWorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    fake_workers.infos = [make_worker("gpu-1", models=[make_model("cat")])]
    monkeypatch.setattr(
        fake_workers,
        "workers",
        lambda: asked.append(connection.in_atomic_block) or list(fake_workers.infos),
    )

    load = services.load_model(actor=operator, model="cat", worker_ids=["gpu-1"])
    services.unload_model(actor=operator, model="cat")
    Deployment.objects.update(state=DeploymentState.SUCCEEDED)
    load.refresh_from_db()
    services.rollback(actor=operator, deployment=load)
    services.reconcile_model(
        model="cat", is_load=True, worker_ids=["gpu-1"], versions=None, reason="It was away"
    )

    assert asked
    assert not any(asked)
