"""Gathers what is wanted, observed and tried, and carries out what `decisions` says.

One process does it at a time (a lease row); beat calls every two seconds.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Max
from django.utils import timezone

from console.core import workers as fleet
from console.deployments import decisions, operations, selectors, services
from console.deployments.choices import (
    OPEN_STATES,
    Action,
    DeploymentState,
    TargetState,
    Trigger,
    WantedState,
)
from console.deployments.decisions import LastLoad, Past, Wanted
from console.deployments.models import Deployment, DeploymentTarget, DesiredModel, Lease
from console.repository import selectors as repository

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15
DISPATCH_LOST_AFTER = timedelta(seconds=5)
HISTORY = timedelta(hours=24)


def take_lease(name: str, *, seconds: int = LEASE_SECONDS) -> str:
    """The holder's mark when the job is ours now, empty when another process does it."""
    holder, now = uuid.uuid4().hex, timezone.now()
    until = now + timedelta(seconds=seconds)
    if Lease.objects.filter(name=name, until__lte=now).update(holder=holder, until=until):
        return holder
    if Lease.objects.filter(name=name).exists():
        return ""
    try:
        Lease.objects.create(name=name, holder=holder, until=until)
    except IntegrityError:
        return ""
    return holder


def give_lease(name: str, holder: str) -> None:
    Lease.objects.filter(name=name, holder=holder).update(until=timezone.now())


def follow_while_open(name: str, step: Callable[[], object], every_s: float) -> None:
    """Call `step` again and again while it is true; one process does this job at a time.

    Ends in time for the next round to take over. Raises: WorkerError.
    """
    holder = take_lease(name, seconds=settings.CONCH_FOLLOW_SECONDS + 5)
    if not holder:
        return
    try:
        deadline = time.monotonic() + settings.CONCH_FOLLOW_SECONDS
        while step() and time.monotonic() < deadline:
            time.sleep(every_s)
    finally:
        give_lease(name, holder)


def reconcile() -> list[Deployment]:
    """One round: follow, start what got lost, adopt, and close differences."""
    workers = fleet.get_client().workers()
    operations.follow()
    _dispatch_lost()
    adopt_repository()
    steps = decisions.decide(gather_wanted(), workers, gather_past(), now=time.time())
    started = []
    for (is_load, model, versions), group in decisions.group(steps).items():
        if is_load and not repository.model_exists(model):
            continue
        started.append(
            services.reconcile_model(
                model=model,
                is_load=is_load,
                worker_ids=[step.worker_id for step in group],
                versions=versions,
                reason=group[0].reason,
            )
        )
    return started


def _dispatch_lost() -> None:
    """Deployments whose task never arrived: the broker was away, or a process died."""
    before = timezone.now() - DISPATCH_LOST_AFTER
    waiting = Deployment.objects.filter(state=DeploymentState.QUEUED, created_at__lt=before)
    for deployment_id in waiting.order_by("pk").values_list("pk", flat=True):
        operations.dispatch(deployment_id)
    # Claimed by a process that died before it sent anything.
    Deployment.objects.filter(
        state=DeploymentState.RUNNING,
        targets=None,
        started_at__lt=timezone.now() - timedelta(seconds=60),
    ).update(state=DeploymentState.QUEUED)


def forget_old_repairs() -> int:
    """Delete ended deployments of the reconciler that no wish refers to; returns how many."""
    if not settings.CONCH_REPAIR_DAYS:
        return 0
    old = Deployment.objects.filter(
        trigger=Trigger.RECONCILER,
        finished_at__lt=timezone.now() - timedelta(days=settings.CONCH_REPAIR_DAYS),
    )
    wished = DesiredModel.objects.exclude(deployment=None).values("deployment")
    count, _ = old.exclude(pk__in=wished).delete()
    return count


def adopt_repository() -> int:
    """On the very first start every model on disk becomes wanted; returns how many."""
    if not settings.CONCH_LOAD_ALL_ON_FIRST_START:
        return 0
    if DesiredModel.objects.exists() or Deployment.objects.exists():
        return 0
    now = timezone.now()
    rows = [
        DesiredModel(model=model.name, worker_id="", state=WantedState.LOADED, updated_at=now)
        for model in repository.models_on_disk()
        if repository.model_exists(model.name)
    ]
    DesiredModel.objects.bulk_create(rows, ignore_conflicts=True)
    if rows:
        logger.info("first start: every model of the repository is wanted, count=%s", len(rows))
    return len(rows)


def gather_wanted() -> list[Wanted]:
    """The desired state, with who has answered to it; three queries, however many models."""
    rows = selectors.desired_all()
    answers = DeploymentTarget.objects.filter(state__in=(TargetState.SUCCEEDED, TargetState.FAILED))
    direct: dict[int, set[str]] = {}
    own = answers.filter(deployment_id__in={row.deployment_id for row in rows if row.deployment_id})
    for deployment_id, worker_id in own.values_list("deployment_id", "worker_id"):
        direct.setdefault(deployment_id, set()).add(worker_id)
    # Workers that the reconciler brought up to a wish afterwards.
    later: dict[str, list[tuple[str, datetime]]] = {}
    repaired = answers.filter(deployment__trigger=Trigger.RECONCILER).order_by()
    newest = repaired.values_list("deployment__model", "worker_id").annotate(Max("sent_at"))
    for model, worker_id, sent_at in newest:
        later.setdefault(model, []).append((worker_id, sent_at))
    return [_wanted(row, direct, later) for row in rows]


def _wanted(
    row: DesiredModel,
    direct: Mapping[int, set[str]],
    later: Mapping[str, list[tuple[str, datetime]]],
) -> Wanted:
    answered = None
    if row.deployment_id is not None:
        repaired = {
            worker for worker, sent_at in later.get(row.model, []) if sent_at > row.updated_at
        }
        answered = frozenset(direct.get(row.deployment_id, set()) | repaired)
    return Wanted(
        model=row.model,
        worker_id=row.worker_id,
        is_loaded=row.state == WantedState.LOADED,
        versions=None if row.versions is None else tuple(row.versions),
        changed_at=row.updated_at.timestamp(),
        answered=answered,
    )


def gather_past() -> Past:
    """What was tried lately, per worker and model."""
    past = Past(
        open_models=frozenset(
            Deployment.objects.filter(state__in=OPEN_STATES).values_list("model", flat=True)
        )
    )
    rows = (
        DeploymentTarget.objects.filter(sent_at__gt=timezone.now() - HISTORY)
        .select_related("deployment")
        .order_by("sent_at")
    )
    for row in rows:
        key = (row.worker_id, row.deployment.model)
        past.last[key] = LastLoad(
            sent_at=row.sent_at.timestamp(),
            is_open=row.state == TargetState.SENT,
            is_refused=row.action == Action.LOAD and row.state == TargetState.FAILED,
            finished_at=row.finished_at.timestamp() if row.finished_at else None,
        )
        if row.action == Action.LOAD and row.deployment.trigger == Trigger.RECONCILER:
            past.attempts.setdefault(key, []).append(row.sent_at.timestamp())
    return past
