"""The REST API does what its OpenAPI description says, whatever schemathesis invents."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction

from console.accounts import services as accounts
from console.deployments import services as deployments
from console.repository import services as repository_services
from console.repository import uploads
from console.repository.choices import UploadState
from console.repository.models import Upload
from tests.console.deployments.acting import answer, serve
from tests.console.disk import Committed, _tasks_run_at_once, committed, repository
from tests.console.fakes import FakeWorkerClient
from tests.console.repository.packing import CONFIG, write_model, zip_bytes
from tests.described import Operations

__all__ = ["_tasks_run_at_once", "committed", "repository"]
pytestmark = pytest.mark.django_db

MODEL = "cat"
"""Served, and a deployment of it runs."""
UNSERVED, DEPLOYED = "dog", "owl"
ARCHIVE = zip_bytes({"ident/config.pbtxt": CONFIG, "ident/1/weights.bin": b"w"})


@contextmanager
def undone(root: Path) -> Iterator[None]:
    """What happens inside leaves no trace in the database, and the models are on disk again."""
    write_models(root)
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def write_models(root: Path) -> None:
    for model in (MODEL, UNSERVED, DEPLOYED):
        write_model(root, model, versions=(1, 2))
        (root / model / "config.pbtxt").write_text(CONFIG.replace('"ident"', f'"{model}"'))


@pytest.fixture
def places(
    repository: Path, admin: Any, fake_workers: FakeWorkerClient, committed: Committed
) -> Callable[[str], dict[str, Any]]:
    """Path parameters that lead to something in the right state for the operation."""
    write_models(repository)
    serve(fake_workers, "1", "2")
    text = (repository / MODEL / "config.pbtxt").read_text()
    repository_services.save_config(actor=admin, model=MODEL, text=text + "# new\n")
    running = deployments.load_model(actor=admin, model="cat")
    with committed():
        done = deployments.load_model(actor=admin, model=DEPLOYED)
    answer(fake_workers)
    usual = {
        "model": MODEL,
        "name": MODEL,
        "version": 2,
        "number": 1,
        "path": "config.pbtxt",
        "upload_id": str(uploads.create_upload(actor=admin, file_name="cat.zip").pk),
        "deployment_id": running.pk,
        "worker_id": "gpu-1",
    }
    upload = "/api/v1/uploads/{upload_id}"
    special: dict[str, dict[str, Any]] = {
        "DELETE /api/v1/models/{model}/files": {"model": UNSERVED},
        "DELETE /api/v1/models/{model}/versions/{version}": {"model": UNSERVED},
        "POST /api/v1/deployments/{deployment_id}/retry": {"deployment_id": done.pk},
        "POST /api/v1/deployments/{deployment_id}/rollback": {"deployment_id": done.pk},
        f"POST {upload}/complete": {"upload_id": str(_filled(admin).pk)},
        **{
            label: {"upload_id": str(_checked(admin, committed).pk)}
            for label in (f"PATCH {upload}", f"PUT {upload}/config", f"POST {upload}/publish")
        },
    }
    return lambda label: usual | special.get(label, {})


def _filled(actor: Any) -> Upload:
    """An upload whose bytes have come, and nothing more."""
    upload = uploads.create_upload(actor=actor, file_name="owl.zip")
    uploads.receive(upload, io.BytesIO(ARCHIVE))
    return upload


def _checked(actor: Any, committed: Committed) -> Upload:
    with committed():
        upload = uploads.stage_upload(actor=actor, files=[("owl.zip", io.BytesIO(ARCHIVE))])
    upload.refresh_from_db()
    assert upload.state == UploadState.CHECKED, upload.findings
    return upload


def application() -> Any:
    """The console; schemathesis does not close the files that it answers with."""
    console = get_wsgi_application()

    def whole(environ: Any, start_response: Any) -> list[bytes]:
        answer = console(environ, start_response)
        try:
            return [b"".join(answer)]
        finally:
            answer.close()

    return whole


@pytest.fixture
def one_connection() -> Iterator[None]:
    """The end of a request must not close the connection that holds the test's transaction."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.mark.usefixtures("one_connection")
def test_every_answer_is_as_described(
    repository: Path, places: Callable[[str], dict[str, Any]], admin: Any
) -> None:
    """Every operation succeeds at least once, but for engines: those are built on a GPU."""
    token = accounts.create_token(actor=admin, name="t", scope="deploy", days=1)[1]
    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema", application(), headers=headers)

    asked = Operations(schema, places, headers=headers, around=lambda: undone(repository)).ask()

    assert not asked.failures, "\n".join(asked.failures)
    assert len(asked.seen) > 35
    assert {item for item in asked.seen - asked.succeeded if "/engines" not in item} == set()
