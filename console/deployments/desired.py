"""The desired state: rows of `DesiredModel`, read and replaced as a whole per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils import timezone

from console.deployments.choices import WantedState
from console.deployments.models import Deployment, DesiredModel

Snapshot = list[dict[str, Any]]


def snapshot(model: str) -> Snapshot:
    """The rows of a model as JSON, for history and undo."""
    return [
        {"worker_id": row.worker_id, "state": row.state, "versions": row.versions}
        for row in DesiredModel.objects.filter(model=model)
    ]


def wish(
    deployment: Deployment,
    state: WantedState,
    *,
    worker_ids: Sequence[str] | None,
    versions: Sequence[int] | None,
) -> None:
    """What `deployment` wants becomes the desired state of its model."""
    if worker_ids is None:
        rows = [{"worker_id": "", "state": state, "versions": _plain(versions)}]
    else:
        kept = [row for row in snapshot(deployment.model) if row["worker_id"] not in worker_ids]
        rows = kept + [
            {"worker_id": worker, "state": state, "versions": _plain(versions)}
            for worker in worker_ids
        ]
    replace(deployment, rows, touched=None if worker_ids is None else set(worker_ids))


def replace(
    deployment: Deployment, rows: Sequence[Mapping[str, Any]], *, touched: set[str] | None = None
) -> None:
    """Make `rows` the desired state of the deployment's model; `touched` None: all are new."""
    now = timezone.now()
    names = [row["worker_id"] for row in rows]
    DesiredModel.objects.filter(model=deployment.model).exclude(worker_id__in=names).delete()
    for row in rows:
        if touched is not None and row["worker_id"] not in touched:
            continue
        DesiredModel.objects.update_or_create(
            model=deployment.model,
            worker_id=row["worker_id"],
            defaults={
                "state": row["state"],
                "versions": row["versions"],
                "revision": deployment.revision,
                "deployment": deployment,
                "updated_by": deployment.actor,
                "updated_at": now,
            },
        )


def _plain(versions: Sequence[int] | None) -> list[int] | None:
    return None if versions is None else sorted(set(versions))


def wanted_on(rows: Sequence[Mapping[str, Any]], worker_id: str) -> Mapping[str, Any] | None:
    """The row that counts for a worker: its own, else the one for all."""
    by_worker = {row["worker_id"]: row for row in rows}
    return by_worker.get(worker_id) or by_worker.get("")
