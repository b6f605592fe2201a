"""Celery tasks of engine builds, on the console's queue; each takes ids and may run twice."""

from __future__ import annotations

import logging

from celery import shared_task

from console.core.background import send
from console.deployments import reconcile
from console.engines import operations
from console.engines.choices import OPEN_STATES
from console.engines.models import EngineBuild
from workers.client import WorkerError

logger = logging.getLogger(__name__)

FOLLOW_EVERY_S = 0.5


@shared_task  # type: ignore[untyped-decorator]
def dispatch_build(build_pk: int) -> None:
    """Send a build to its worker, then see that somebody follows it."""
    if operations.dispatch(build_pk):
        send(follow_builds)


@shared_task  # type: ignore[untyped-decorator]
def follow_builds() -> None:
    """Follow all open builds while there are any; one process does it at a time."""
    try:
        reconcile.follow_while_open("engines", operations.follow, FOLLOW_EVERY_S)
    except WorkerError as error:
        logger.warning("following engine builds is left to the next round: %s", error)


@shared_task(expires=10)  # type: ignore[untyped-decorator]
def sweep_builds() -> None:
    """Builds that wait for a task that got lost, or that nobody follows."""
    if not EngineBuild.objects.filter(state__in=OPEN_STATES).exists():
        return
    operations.dispatch_waiting()
    follow_builds()


BEAT = {
    "engines-sweep": {
        "task": "console.engines.tasks.sweep_builds",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
}
