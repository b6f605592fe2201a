"""Roll back and retry: config, versions, desired state and files come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.deployments import services
from console.deployments.models import Deployment
from console.repository import services as repository_services
from serving.errors import InvalidArgumentError
from tests.console.deployments.acting import answer, desired, sent, serve
from tests.console.disk import Committed
from tests.console.fakes import FakeWorkerClient, make_worker
from tests.console.repository.packing import CONFIG, write_model


def test_roll_back_restores_config_and_the_version_that_was_served(
    model: Path, load: Any, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    old = (model / "config.pbtxt").read_text()
    serve(fake_workers, "2")
    load()
    answer(fake_workers)
    new = old.replace("max_batch_size: 4", "max_batch_size: 8")
    write_model(model.parent, "cat", versions=(3,), config=None)
    with committed():
        saved = repository_services.save_config(actor=operator, model="cat", text=new, load=True)
    answer(fake_workers, versions=("3",))
    serve(fake_workers, "3")
    fake_workers.calls.clear()

    with committed():
        deployment = services.rollback(actor=operator, deployment=Deployment.objects.first())

    assert (model / "config.pbtxt").read_text() == old
    assert sent(fake_workers) == [("load", "gpu-1", [2])]
    assert desired() == [("", "loaded", [2])]
    assert deployment.what == "Roll back to version 2"
    assert deployment.rollback_of == saved.deployment
    assert deployment.revision.source == "rollback"


def test_roll_back_of_the_first_load_unloads(
    model: Path, load: Any, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    first = load()
    answer(fake_workers)
    serve(fake_workers, "2")
    first.refresh_from_db()
    fake_workers.calls.clear()

    with committed():
        services.rollback(actor=operator, deployment=first)

    assert sent(fake_workers) == [("unload", "gpu-1", None)]
    assert desired() == [("", "unloaded", None)]


def test_roll_back_brings_a_deleted_version_back_from_the_trash(
    model: Path, load: Any, operator: Any, admin: Any, committed: Committed,
    fake_workers: FakeWorkerClient,
) -> None:  # fmt: skip
    serve(fake_workers, "1")
    load(versions=[2])
    answer(fake_workers)
    serve(fake_workers, "2")
    repository_services.delete_version(actor=admin, model="cat", version=1)

    with committed():
        services.rollback(actor=operator, deployment=Deployment.objects.first())

    assert (model / "1/weights.bin").is_file()
    assert sent(fake_workers)[-1] in [("unload", "gpu-1", None), ("load", "gpu-1", [1])]


def test_roll_back_without_the_files_is_refused(
    model: Path, load: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    serve(fake_workers, "7")
    load()
    answer(fake_workers)

    with pytest.raises(InvalidArgumentError, match="neither in the repository nor in the trash"):
        services.rollback(actor=operator, deployment=Deployment.objects.first())


def test_a_running_deployment_is_neither_retried_nor_rolled_back(
    model: Path, load: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    deployment = load()

    for deed in (services.retry, services.rollback):
        with pytest.raises(InvalidArgumentError, match="still runs"):
            deed(actor=operator, deployment=deployment)


def test_retry_does_the_same_again(
    model: Path, load: Any, operator: Any, committed: Committed, fake_workers: FakeWorkerClient
) -> None:
    failed = load(versions=[1])
    fake_workers.infos = [make_worker("gpu-1")]

    with committed():
        again = services.retry(actor=operator, deployment=failed)

    assert sent(fake_workers) == [("load", "gpu-1", [1])]
    assert again.retry_of == failed


def test_a_config_saved_and_loaded_knows_the_revision_before(
    model: Path, load: Any, operator: Any, fake_workers: FakeWorkerClient
) -> None:
    fake_workers.infos = [make_worker("gpu-1")]
    load()
    answer(fake_workers)

    saved = repository_services.save_config(
        actor=operator, model="cat", load=True,
        text=CONFIG.replace('"ident"', '"cat"').replace("max_batch_size: 4", "max_batch_size: 2"),
    )  # fmt: skip

    assert saved.deployment is not None
    assert saved.deployment.previous_revision is not None
    assert saved.deployment.previous_revision.number == 1
    assert saved.revision.number == 2
