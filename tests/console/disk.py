"""Fixtures of tests that work on a model repository and on Celery tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from console.celery import app as celery_app

Committed = Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def repository(settings: Any, tmp_path: Path) -> Path:
    """An empty model repository on disk."""
    root = tmp_path / "models"
    root.mkdir()
    settings.CONCH_MODEL_REPOSITORY = root
    return root


@pytest.fixture(autouse=True)
def _tasks_run_at_once(settings: Any) -> Iterator[None]:
    """No broker: a task runs where it is sent."""
    settings.CONCH_FOLLOW_SECONDS = 0
    celery_app.conf.task_always_eager = True
    celery_app.conf.task_eager_propagates = True
    yield
    celery_app.conf.task_always_eager = False
    celery_app.conf.task_eager_propagates = False


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> Committed:
    """`with committed(): ...` runs what waits for the commit, tasks included."""
    return lambda: django_capture_on_commit_callbacks(execute=True)
