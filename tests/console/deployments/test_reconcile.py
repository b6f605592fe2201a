"""One round of the reconciler, with fake workers and real files."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from console.deployments import reconcile, services
from console.deployments.choices import DeploymentState
from console.deployments.models import Deployment, DeploymentTarget, DesiredModel
from tests.console.deployments.acting import answer, serve
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.repository.packing import write_model


def test_first_start_wants_every_model_on_disk(
    repository: Path, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    write_model(repository, "cat")
    write_model(repository, "dog")
    fake_workers.infos = [make_worker("gpu-1")]

    with committed():
        reconcile.reconcile()

    assert sorted(call.model for call in fake_workers.calls) == ["cat", "dog"]
    assert reconcile.adopt_repository() == 0


def test_first_start_can_be_told_to_load_nothing(
    model: Path, settings: Any, db: None, fake_workers: FakeWorkerClient
) -> None:
    settings.CONCH_LOAD_ALL_ON_FIRST_START = False
    fake_workers.infos = [make_worker("gpu-1")]

    assert reconcile.reconcile() == []


def test_a_restarted_worker_gets_its_models_back(
    model: Path, load: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "2")
    load()
    answer(fake_workers)
    DeploymentTarget.objects.update(finished_at=timezone.now() - timedelta(minutes=1))
    fake_workers.infos = [make_worker("gpu-1", started_at=time.time() + 1)]

    with committed():
        (deployment,) = reconcile.reconcile()

    assert (deployment.trigger, deployment.actor) == ("reconciler", None)
    assert deployment.reason == "The worker started"
    assert reconcile.reconcile() == []


def test_a_deployment_whose_task_got_lost_is_sent_by_the_reconciler(
    model: Path, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    deployment = services.load_model(actor=operator, model="cat")
    Deployment.objects.update(created_at=timezone.now() - timedelta(seconds=10))

    reconcile.reconcile()

    deployment.refresh_from_db()
    assert deployment.state == DeploymentState.RUNNING
    assert len(fake_workers.calls) == 1


def test_one_process_holds_a_lease_at_a_time(db: None) -> None:
    mine = reconcile.take_lease("job", seconds=60)

    assert mine
    assert reconcile.take_lease("job") == ""
    reconcile.give_lease("job", mine)
    assert reconcile.take_lease("job") != ""


def test_a_worker_that_was_away_is_brought_up_to_the_wish_once(
    model: Path, load: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "2", worker_id="gpu-1")
    serve(fake_workers, "2", worker_id="gpu-2")
    away = fake_workers.infos.pop()
    load()
    answer(fake_workers)
    fake_workers.infos.append(away)

    with committed():
        (deployment,) = reconcile.reconcile()
    answer(fake_workers)
    DeploymentTarget.objects.update(finished_at=timezone.now() - timedelta(minutes=1))

    assert deployment.worker_ids == [away.worker_id]
    assert deployment.reason == "The worker was away when this was deployed"
    assert reconcile.reconcile() == []


def test_a_round_takes_few_queries_however_many_models(
    repository: Path, operator: Any, fake_workers: FakeWorkerClient,
    django_assert_max_num_queries: Any,
) -> None:  # fmt: skip
    names = [f"m{index}" for index in range(20)]
    for name in names:
        write_model(repository, name)
    reconcile.adopt_repository()
    fake_workers.infos = [make_worker(models=[make_model(name) for name in names])]

    with django_assert_max_num_queries(16):
        assert reconcile.reconcile() == []


def test_old_repairs_are_forgotten_and_what_people_did_is_kept(
    repository: Path, operator: Any, settings: Any
) -> None:
    write_model(repository, "cat")
    long_ago = timezone.now() - timedelta(days=31)
    by_person = services.load_model(actor=operator, model="cat")
    repairs = [
        services.reconcile_model(
            model="cat", is_load=True, worker_ids=["w"], versions=None, reason="It was away"
        )
        for _ in range(3)
    ]
    wished = DesiredModel.objects.get(model="cat")
    wished.deployment = repairs[0]
    wished.save()
    ended = Deployment.objects.exclude(pk=repairs[1].pk)
    ended.update(finished_at=long_ago, state="succeeded")

    settings.CONCH_REPAIR_DAYS = 0
    assert reconcile.forget_old_repairs() == 0
    settings.CONCH_REPAIR_DAYS = 30
    reconcile.forget_old_repairs()

    kept = set(Deployment.objects.values_list("pk", flat=True))
    assert kept == {by_person.pk, repairs[0].pk, repairs[1].pk}
