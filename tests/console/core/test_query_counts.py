"""What list pages may ask of the database, however long the lists are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.accounts import services as accounts
from console.core import audit
from console.deployments import services as deployments
from console.repository import services as repository_services
from tests.console.disk import repository
from tests.console.fakes import FakeWorkerClient, make_model, make_worker
from tests.console.repository.packing import write_model

__all__ = ["repository"]

pytestmark = pytest.mark.django_db

ROWS = 30


@pytest.fixture
def plenty(
    repository: Path, fake_workers: FakeWorkerClient, make_user: Any, operator: Any, admin: Any
) -> None:
    names = [f"model-{number}" for number in range(ROWS)]
    fake_workers.infos = [
        make_worker(f"w{number}", models=[make_model(name) for name in names])
        for number in range(ROWS)
    ]
    for number, name in enumerate(names):
        write_model(repository, name, versions=(1, 2))
        repository_services.create_upload(actor=operator, file_name=f"{name}.zip")
        deployments.load_model(actor=operator, model=name)
        accounts.create_token(actor=admin, name=name, scope="read", days=1)
        audit.record(make_user(f"person-{number}", "viewer"), "look at", name)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/", 9),
        ("/models/", 9),
        ("/models/model-1/history/", 12),
        ("/deployments/", 9),
        ("/repository/", 9),
        ("/repository/upload/", 9),
        ("/workers/", 7),
        ("/settings/users/", 9),
        ("/settings/tokens/", 9),
        ("/settings/audit/", 9),
        ("/api/v1/models", 6),
        ("/api/v1/models/model-1/revisions", 5),
        ("/api/v1/deployments", 6),
        ("/api/v1/desired", 5),
        ("/api/v1/uploads", 6),
        ("/api/v1/workers", 5),
    ],
)
def test_lists_do_not_ask_for_each_row(
    plenty: None, admin: Any, login: Any, path: str, most: int, django_assert_max_num_queries: Any
) -> None:
    client = login(admin)
    client.get("/account/")

    with django_assert_max_num_queries(most):
        assert client.get(path).status_code == 200
