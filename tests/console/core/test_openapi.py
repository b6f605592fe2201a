"""The REST API does what its OpenAPI description says, whatever schemathesis invents.

SCHEMATHESIS_EXAMPLES makes the run longer: so many requests for each operation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from console.accounts import services as accounts
from console.deployments import services as deployments
from console.repository import services as repository_services
from console.repository import uploads
from tests.console.deployments.acting import serve
from tests.console.disk import _tasks_run_at_once, repository
from tests.console.fakes import FakeWorkerClient
from tests.console.repository.packing import CONFIG, write_model

__all__ = ["_tasks_run_at_once", "repository"]
pytestmark = pytest.mark.django_db

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "5"))
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
MODEL = "cat"


@contextmanager
def undone(root: Path) -> Iterator[None]:
    """What happens inside leaves no trace in the database, and there is a model on disk."""
    write_model(root, MODEL, versions=(1, 2))
    (root / MODEL / "config.pbtxt").write_text(CONFIG.replace('"ident"', f'"{MODEL}"'))
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def places(repository: Path, admin: Any, fake_workers: FakeWorkerClient) -> dict[str, Any]:
    """Path parameters that lead to something."""
    write_model(repository, MODEL, versions=(1, 2))
    serve(fake_workers, "1", "2")
    text = (repository / MODEL / "config.pbtxt").read_text()
    repository_services.save_config(actor=admin, model=MODEL, text=text + "# new\n")
    upload = uploads.create_upload(actor=admin, file_name="cat.zip")
    deployment = deployments.load_model(actor=admin, model=MODEL)
    return {
        "model": MODEL,
        "name": MODEL,
        "version": 2,
        "number": 1,
        "path": "config.pbtxt",
        "upload_id": str(upload.pk),
        "deployment_id": deployment.pk,
        "worker_id": "gpu-1",
    }


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
def test_every_answer_is_as_described(repository: Path, places: dict[str, Any], admin: Any) -> None:
    token = accounts.create_token(actor=admin, name="t", scope="deploy", days=1)[1]
    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema", application(), headers=headers)
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    checks = [CHECKS.get_one(name) for name in CHECKED]
    failures, seen, succeeded = [], set(), set()

    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), is_there=st.sampled_from([True, True, False]))
        def check(case: Any, is_there: bool) -> None:
            if is_there:
                for name in case.path_parameters or {}:
                    case.path_parameters[name] = places[name]
            answer = case.call_and_validate(headers=headers, checks=checks)
            if answer.status_code < 300:
                succeeded.add(operation.label)  # noqa: B023 - called within the loop

        with undone(repository):
            try:
                check()
            except (Exception, BaseExceptionGroup) as error:
                failures.append(f"{operation.label}: {error}")
        seen.add(operation.label)

    assert not failures, "\n".join(failures)
    assert len(seen) > 25
    assert len(succeeded) > 20, "too few requests have a right answer to say anything"
