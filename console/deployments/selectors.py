"""Reads of deployments and of the desired state; changes nothing. Any thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from console.core import workers as fleet
from console.deployments.choices import (
    OPEN_STATES,
    Action,
    DeploymentState,
    TargetState,
    WantedState,
)
from console.deployments.models import Deployment, DeploymentTarget, DesiredModel
from serving.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of the stepper; `state` is of the one vocabulary of states."""

    label: str
    state: str
    at: datetime | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Filters:
    search: str = ""
    state: str = ""
    action: str = ""
    who: str = ""
    """people or system; empty: both."""


def deployments(filters: Filters | None = None) -> QuerySet[Deployment]:
    """Newest first, with what the list shows."""
    filters = filters or Filters()
    rows = Deployment.objects.select_related("actor", "revision", "previous_revision")
    # PostgreSQL refuses a NUL; nothing is called so.
    for word in filters.search.replace("\0", " ").split():
        rows = rows.filter(Q(model__icontains=word) | Q(actor__username__icontains=word))
    if filters.who:
        rows = rows.filter(actor__isnull=filters.who == "system")
    if filters.state == "open":
        rows = rows.filter(state__in=OPEN_STATES)
    elif filters.state:
        rows = rows.filter(state=filters.state)
    return rows.filter(action=filters.action) if filters.action else rows


def deployments_for(model: str | None = None, limit: int = 50) -> list[Deployment]:
    """The newest deployments, of one model or of all."""
    rows = deployments()
    if model is not None:
        rows = rows.filter(model=model)
    return list(rows[:limit])


def get(deployment_id: int) -> Deployment:
    """Raises NotFoundError."""
    rows = deployments().select_related("upload", "retry_of", "rollback_of")
    found = rows.prefetch_related("targets").filter(pk=deployment_id).first()
    if found is None:
        raise NotFoundError(f"There is no deployment {deployment_id}.")
    return found


def desired_for(model: str) -> list[DesiredModel]:
    """What is wanted of a model: the row for all workers first."""
    return list(DesiredModel.objects.filter(model=model).select_related("revision", "updated_by"))


def desired_all() -> list[DesiredModel]:
    return list(DesiredModel.objects.select_related("deployment", "revision", "updated_by"))


def wanted_models() -> set[str]:
    """Models that at least one worker should serve."""
    rows = DesiredModel.objects.filter(state=WantedState.LOADED)
    return set(rows.values_list("model", flat=True))


def open_count() -> int:
    return Deployment.objects.filter(state__in=OPEN_STATES).count()


def phases(deployment: Deployment) -> list[Phase]:
    """The road of a deployment: from the upload, where it came from one, to its end."""
    steps = _upload_phases(deployment)
    steps.append(Phase("Requested", "done", deployment.created_at, f"by {deployment.who}"))
    targets = list(deployment.targets.all())
    for target in targets:
        steps.append(_target_phase(target))
    if not targets and deployment.is_open:
        steps.append(Phase(_doing(deployment.action), _waiting(deployment)))
    steps.append(_end_phase(deployment))
    return steps


def _upload_phases(deployment: Deployment) -> list[Phase]:
    upload = deployment.upload
    if upload is None:
        return []
    return [
        Phase("Staged", "done", upload.created_at),
        Phase("Checked", "done", upload.checked_at),
        Phase("Published", "done", upload.published_at),
    ]


def _doing(action: str) -> str:
    words = {Action.LOAD: "Loading", Action.UNLOAD: "Unloading", Action.ROLLBACK: "Rolling back"}
    return words[Action(action)]


def _waiting(deployment: Deployment) -> str:
    return "running" if deployment.state == DeploymentState.RUNNING else "pending"


_TARGET_STATES = {
    TargetState.SENT: "running",
    TargetState.SUCCEEDED: "done",
    TargetState.FAILED: "failed",
    TargetState.LOST: "lost",
}


def _target_phase(target: DeploymentTarget) -> Phase:
    label = f"{_doing(target.action)} {target.worker_id}"
    state = _TARGET_STATES[TargetState(target.state)]
    return Phase(label, state, target.finished_at or target.sent_at, target.error)


def _end_phase(deployment: Deployment) -> Phase:
    label = "Live" if deployment.action != Action.UNLOAD else "Unloaded"
    if deployment.is_open:
        return Phase(label, "pending")
    if deployment.state == DeploymentState.SUCCEEDED:
        return Phase(label, "done", deployment.finished_at)
    return Phase(f"Not {label.lower()}", deployment.state, deployment.finished_at)


def serving_workers(model: str) -> list[tuple[str, list[str]]]:
    """(worker, versions it serves) of every connected worker that serves the model."""
    rows = []
    for worker in fleet.known()[0]:
        if worker.is_gone:
            continue
        mine = [row for row in worker.models if row.name == model and row.state == "READY"]
        versions = [row.version for row in mine]
        if versions:
            rows.append((worker.worker_id, sorted(versions, key=_version_order)))
    return rows


def _version_order(version: str) -> int:
    return int(version) if version.isdigit() else 0
