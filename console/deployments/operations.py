"""Carry deployments out: send operations to workers, note how they ended.

Runs in the control process. Rows are claimed by conditional updates, so that two tasks that meet do
nothing twice. Expected ends are FAILED with the worker's own words, unexpected ones ERRORED with a
traceback.
"""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.core import audit
from console.core import workers as fleet
from console.deployments import desired
from console.deployments.choices import Action, DeploymentState, TargetState, WantedState
from console.deployments.models import Deployment, DeploymentTarget
from workers.client import WorkerError
from workers.messages import OperationResult, WorkerInfo

logger = logging.getLogger(__name__)

CONNECTED = frozenset({"ready", "starting"})
MOVING = frozenset({"LOADING", "UNLOADING"})
_END_WORDS = {"lost": "was lost", "stopped": "stopped"}
RESTART_GRACE_S = 15.0
"""A restarted worker may still find the task in its queue."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one worker is asked for."""

    worker_id: str
    action: Action
    versions: list[int] | None


def dispatch(deployment_id: int) -> bool:
    """Send the operations of a queued deployment; False when it is not queued any more."""
    claimed = Deployment.objects.filter(pk=deployment_id, state=DeploymentState.QUEUED).update(
        state=DeploymentState.RUNNING, started_at=timezone.now()
    )
    if not claimed:
        return False
    deployment = Deployment.objects.get(pk=deployment_id)
    try:
        _send_all(deployment)
    except WorkerError as error:
        _end(deployment, DeploymentState.FAILED, str(error))
    except Exception as error:
        logger.exception("dispatch broke: deployment=%s", deployment_id)
        text = f"Sending the operation broke: {type(error).__name__}: {error}"
        _end(deployment, DeploymentState.ERRORED, text, traceback.format_exc())
    return True


def _send_all(deployment: Deployment) -> None:
    client = fleet.get_client()
    workers = client.workers()
    orders = plan_orders(deployment, workers)
    if not orders:
        _end_without_orders(deployment, workers)
        return
    states = {worker.worker_id: worker.state for worker in workers}
    for order in orders:
        target = DeploymentTarget.objects.create(
            deployment=deployment,
            worker_id=order.worker_id,
            operation_id=uuid.uuid4().hex,
            action=order.action,
            versions=order.versions,
            sent_at=timezone.now(),
        )
        state = states.get(order.worker_id, "lost")
        if state not in CONNECTED:
            # Nothing is put into the queue of a worker that is away: it would act on it much later.
            record_failed(target, f"Worker {order.worker_id} is {state}.", state=TargetState.LOST)
            continue
        try:
            _send(target, deployment)
        except WorkerError as error:
            record_failed(target, str(error), state=TargetState.LOST)


def _send(target: DeploymentTarget, deployment: Deployment) -> None:
    client = fleet.get_client()
    if target.action == Action.LOAD:
        client.load_model(
            target.worker_id,
            deployment.model,
            operation_id=target.operation_id,
            versions=target.versions,
        )
        return
    client.unload_model(
        target.worker_id,
        deployment.model,
        operation_id=target.operation_id,
        version=target.versions[0] if target.versions else None,
        unload_dependents=deployment.unload_dependents,
    )


def plan_orders(deployment: Deployment, workers: Sequence[WorkerInfo]) -> list[Order]:
    """Which worker is asked for what. Lost workers that were named count as asked in vain."""
    if deployment.worker_ids is None:
        ids = [worker.worker_id for worker in workers if worker.state in CONNECTED]
    else:
        ids = list(deployment.worker_ids)
    if deployment.action != Action.ROLLBACK:
        return [Order(name, Action(deployment.action), deployment.versions) for name in ids]
    orders = []
    for name in ids:
        row = desired.wanted_on(deployment.desired, name)
        if row is not None and row["state"] == WantedState.LOADED:
            orders.append(Order(name, Action.LOAD, row["versions"]))
        else:
            orders.append(Order(name, Action.UNLOAD, None))
    return orders


def _end_without_orders(deployment: Deployment, workers: Sequence[WorkerInfo]) -> None:
    if deployment.action == Action.UNLOAD:
        _end(deployment, DeploymentState.SUCCEEDED)
        return
    known = f"{len(workers)} known, none connected" if workers else "none has ever connected"
    _end(
        deployment,
        DeploymentState.FAILED,
        f"No worker is connected ({known}). The model stays wanted: it is loaded as soon as a "
        "worker connects.",
    )


def follow() -> int:
    """Look once at every running operation; returns how many still run."""
    targets = list(
        DeploymentTarget.objects.filter(
            state=TargetState.SENT, deployment__state=DeploymentState.RUNNING
        ).select_related("deployment")
    )
    if targets:
        client = fleet.get_client()
        workers = {worker.worker_id: worker for worker in client.workers()}
        now = timezone.now()
        for target in targets:
            result = client.operation_result(target.operation_id)
            if result is not None:
                record_result(target, result)
            elif reason := lost_reason(target, workers.get(target.worker_id), now):
                record_failed(target, reason, state=TargetState.LOST)
    return _finish_complete()


def lost_reason(target: DeploymentTarget, worker: WorkerInfo | None, now: datetime) -> str:
    """Why no answer will come any more, or empty while one may."""
    name, model = target.worker_id, target.deployment.model
    if worker is None:
        return f"Worker {name} is not known any more."
    if worker.is_gone:
        return f"Worker {name} {_END_WORDS[worker.state]} before it answered."
    moving = any(row.name == model and row.state in MOVING for row in worker.models)
    sent, at = target.sent_at.timestamp(), now.timestamp()
    if worker.started_at > sent and at - worker.started_at > RESTART_GRACE_S and not moving:
        return f"Worker {name} was restarted before it answered."
    if now - target.sent_at > timedelta(seconds=settings.CONCH_OPERATION_SECONDS):
        return f"Worker {name} did not answer within {settings.CONCH_OPERATION_SECONDS} s."
    return ""


def record_result(target: DeploymentTarget, result: OperationResult) -> None:
    """Note a worker's answer."""
    finished = datetime.fromtimestamp(result.finished_at, UTC)
    if result.is_success:
        record_loaded(target, finished, result.ready_versions)
    else:
        record_failed(target, result.error or "The worker gave no reason.", finished=finished)


def record_loaded(target: DeploymentTarget, finished: datetime, ready: Iterable[str]) -> None:
    DeploymentTarget.objects.filter(pk=target.pk, state=TargetState.SENT).update(
        state=TargetState.SUCCEEDED, finished_at=finished, ready_versions=list(ready)
    )


def record_failed(
    target: DeploymentTarget,
    error: str,
    *,
    state: TargetState = TargetState.FAILED,
    finished: datetime | None = None,
) -> None:
    DeploymentTarget.objects.filter(pk=target.pk, state=TargetState.SENT).update(
        state=state, error=error, finished_at=finished or timezone.now()
    )


def _finish_complete() -> int:
    """End running deployments whose operations are all over; returns how many still run."""
    still = 0
    running = Deployment.objects.filter(state=DeploymentState.RUNNING).prefetch_related("targets")
    for deployment in running:
        targets = list(deployment.targets.all())
        if not targets or any(target.state == TargetState.SENT for target in targets):
            still += 1
            continue
        failed = [target for target in targets if target.state != TargetState.SUCCEEDED]
        if failed:
            text = "\n".join(f"{target.worker_id}: {target.error}" for target in failed)
            _end(deployment, DeploymentState.FAILED, text)
        else:
            _end(deployment, DeploymentState.SUCCEEDED)
    return still


@transaction.atomic
def _end(deployment: Deployment, state: DeploymentState, error: str = "", trace: str = "") -> None:
    ended = Deployment.objects.filter(pk=deployment.pk, state=DeploymentState.RUNNING).update(
        state=state, error=error, traceback=trace, finished_at=timezone.now()
    )
    if not ended:
        return
    deployment.refresh_from_db()
    audit.record(
        deployment.actor,
        f"{deployment.action} {state.value}",
        deployment.model,
        {"deployment": deployment.pk, "error": error},
    )
    logger.info(
        "deployment ended: id=%s action=%s state=%s model=%s",
        deployment.pk, deployment.action, state.value, deployment.model,
    )  # fmt: skip
