"""A repository on disk, and tasks that run at once."""

from __future__ import annotations

from tests.console.disk import _tasks_run_at_once, committed, repository

__all__ = ["_tasks_run_at_once", "committed", "repository"]
