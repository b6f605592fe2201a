"""The Celery side: rhythms, a Redis that is away, tasks that run twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.celery import app, collect_beat
from console.core import background
from console.deployments import reconcile, services, tasks
from console.deployments.models import Deployment, Lease
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_worker
from tests.console.repository.packing import write_model
from workers.client import WorkerError


@pytest.fixture
def model(repository: Path) -> Path:
    return write_model(repository, "cat")


@pytest.mark.parametrize(
    "task",
    [
        "console.deployments.tasks.reconcile_deployments",
        "console.repository.tasks.sweep_uploads",
    ],
)
def test_the_rhythm_names_tasks_that_exist(task: str) -> None:
    scheduled = {entry["task"] for entry in collect_beat().values()}

    assert task in scheduled
    assert task in app.tasks


@pytest.mark.parametrize("task", [tasks.reconcile_deployments, tasks.follow_deployments])
def test_a_redis_that_is_away_leaves_the_round_out_and_frees_the_lease(
    model: Path, operator: Any, committed: Committed, fake_workers: FakeWorkerClient, task: Any
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    with committed():
        services.load_model(actor=operator, model="cat")
    fake_workers.error = WorkerError("Redis is away")

    task()

    assert Deployment.objects.get().state == "running"
    assert all(reconcile.take_lease(name) for name in Lease.objects.values_list("name", flat=True))


def test_a_dispatch_that_runs_twice_sends_once(
    model: Path, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    deployment = services.load_model(actor=operator, model="cat")

    tasks.dispatch_deployment(deployment.pk)
    tasks.dispatch_deployment(deployment.pk)

    assert len(fake_workers.calls) == 1


def test_a_round_that_another_process_does_is_left_to_it(
    model: Path, db: None, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    reconcile.take_lease("reconcile")

    tasks.reconcile_deployments()

    assert fake_workers.calls == []


def test_a_broker_that_is_away_does_not_break_a_saved_change(settings: Any) -> None:
    class Unreachable:
        name = "some.task"

        def apply_async(self, **_: Any) -> None:
            raise ConnectionRefusedError("no broker")

    assert background.send(Unreachable()) is False
