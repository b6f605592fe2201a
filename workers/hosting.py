"""Which WorkerHost lives in this process: set by the bootstep, read by the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.host import WorkerHost

_current: WorkerHost | None = None


def current() -> WorkerHost:
    """Raises RuntimeError where no worker hosts a server (a task run by hand)."""
    if _current is None:
        raise RuntimeError(
            "no serving core in this process: tasks of a worker run in `celery -A workers worker`"
        )
    return _current


def set_current(host: WorkerHost | None) -> None:
    global _current
    _current = host
