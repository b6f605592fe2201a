"""What the system did to many models at once, as one line of the history.

A worker that starts loads every model that is wanted of it: a deployment each, which together
say no more than "the worker started". Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from console.deployments.choices import DeploymentState, Trigger
from console.deployments.models import Deployment

TOGETHER = timedelta(minutes=1)
"""Deployments of one cause lie no further apart."""


@dataclass(frozen=True, slots=True)
class Line:
    """One or more deployments, newest first; more than one only where they are alike."""

    items: list[Deployment]

    @property
    def newest(self) -> Deployment:
        return self.items[0]

    @property
    def oldest(self) -> Deployment:
        return self.items[-1]

    @property
    def is_folded(self) -> bool:
        return len(self.items) > 1

    @property
    def workers(self) -> list[str]:
        return self.newest.worker_ids or []

    @property
    def took(self) -> timedelta | None:
        """From the first request to the last end."""
        ends = [item.finished_at for item in self.items if item.finished_at]
        return max(ends) - self.oldest.created_at if ends else None


def fold(rows: Iterable[Deployment]) -> list[Line]:
    """`rows`, newest first, with what one cause made of many models on one line.

    Deeds of people stand for themselves, and so does what failed or still runs.
    """
    lines: list[Line] = []
    latest: dict[tuple[str, str, tuple[str, ...]], Line] = {}
    for row in rows:
        if not _may_fold(row):
            lines.append(Line([row]))
            continue
        key = (row.action, row.reason, tuple(row.worker_ids or ()))
        line = latest.get(key)
        if line is not None and _belongs(row, line):
            line.items.append(row)
        else:
            latest[key] = Line([row])
            lines.append(latest[key])
    return lines


def _may_fold(row: Deployment) -> bool:
    return row.trigger == Trigger.RECONCILER and row.state == DeploymentState.SUCCEEDED


def _belongs(row: Deployment, line: Line) -> bool:
    """A second load of the same model is of another start."""
    if line.newest.created_at - row.created_at > TOGETHER:
        return False
    return all(item.model != row.model for item in line.items)
