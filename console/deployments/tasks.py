"""Celery tasks of deployments, on the console's queue; each takes ids and may run twice."""

from __future__ import annotations

import logging

from celery import shared_task

from console.core.background import send
from console.deployments import operations, reconcile
from workers.client import WorkerError

logger = logging.getLogger(__name__)

FOLLOW_EVERY_S = 0.2


@shared_task  # type: ignore[untyped-decorator]
def dispatch_deployment(deployment_id: int) -> None:
    """Send a deployment's operations to its workers, then see that somebody follows them."""
    if operations.dispatch(deployment_id):
        send(follow_deployments)


@shared_task  # type: ignore[untyped-decorator]
def follow_deployments() -> None:
    """Follow all running operations while there are any; one process does it at a time."""
    try:
        reconcile.follow_while_open("follow", operations.follow, FOLLOW_EVERY_S)
    except WorkerError as error:
        logger.warning("following is left to the next round: %s", error)


@shared_task  # type: ignore[untyped-decorator]
def reconcile_deployments() -> None:
    """One round of the reconciler; a Redis that is away is tried again by the next beat."""
    holder = reconcile.take_lease("reconcile")
    if not holder:
        return
    try:
        reconcile.reconcile()
    except WorkerError as error:
        logger.warning("this round is left out: %s", error)
    finally:
        reconcile.give_lease("reconcile", holder)


@shared_task(expires=3600)  # type: ignore[untyped-decorator]
def forget_old_repairs() -> None:
    """A worker that restarts again and again leaves a deployment each time."""
    reconcile.forget_old_repairs()


BEAT = {
    "deployments-forget": {
        "task": "console.deployments.tasks.forget_old_repairs",
        "schedule": 6 * 3600.0,
    },
    "deployments-reconcile": {
        "task": "console.deployments.tasks.reconcile_deployments",
        "schedule": 2.0,
        # A round that nobody took in time is of no use later.
        "options": {"expires": 4},
    },
}
