"""A repository on disk with the model `cat`, and tasks that run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.deployments import services
from console.deployments.models import Deployment
from tests.console.disk import Committed, _tasks_run_at_once, committed, repository
from tests.console.repository.packing import write_model

__all__ = ["_tasks_run_at_once", "committed", "repository"]


@pytest.fixture
def model(repository: Path) -> Path:
    return write_model(repository, "cat", versions=(1, 2))


@pytest.fixture
def load(operator: Any, committed: Committed) -> Any:
    """`load()`: load `cat`, with the tasks run."""

    def make(**changes: Any) -> Deployment:
        with committed():
            deployment = services.load_model(actor=operator, model="cat", **changes)
        deployment.refresh_from_db()
        return deployment

    return make
