"""Carry builds out: send them to their workers, note how far they are and how they ended.

Runs in the control process, or in `manage.py build_engine`. Rows are claimed by conditional
updates, so that two that meet do nothing twice.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from console.core import audit
from console.core import workers as fleet
from console.engines.choices import OPEN_STATES, BuildState
from console.engines.models import EngineBuild
from console.engines.services import order_of
from console.repository import configs, selectors
from console.repository.choices import RevisionSource
from workers.client import ORDER_EXPIRES_S, WorkerError
from workers.engine_messages import EngineProgress
from workers.messages import WorkerInfo

logger = logging.getLogger(__name__)

_END_WORDS = {"lost": "was lost", "stopped": "stopped"}
_GRACE = timedelta(seconds=60)


def dispatch(build_pk: int) -> bool:
    """Send a queued build to its worker; False when it was sent already or is over."""
    claimed = EngineBuild.objects.filter(pk=build_pk, state=BuildState.QUEUED, sent_at=None).update(
        sent_at=timezone.now()
    )
    if not claimed:
        return False
    build = EngineBuild.objects.get(pk=build_pk)
    try:
        fleet.get_client().build_engine(build.worker_id, order_of(build))
    except WorkerError as error:
        end(build, BuildState.FAILED, error=str(error))
    return True


def dispatch_waiting() -> None:
    """Builds whose task got lost, e.g. because Redis was away."""
    before = timezone.now() - timedelta(seconds=5)
    waiting = EngineBuild.objects.filter(
        state=BuildState.QUEUED, sent_at=None, created_at__lt=before
    )
    for pk in waiting.values_list("pk", flat=True):
        dispatch(pk)


def follow() -> int:
    """Look once at every open build; returns how many are still open. Raises WorkerError."""
    sent = list(EngineBuild.objects.filter(state__in=OPEN_STATES).exclude(sent_at=None))
    if sent:
        client = fleet.get_client()
        workers = {worker.worker_id: worker for worker in client.workers()}
        now = timezone.now()
        for build in sent:
            progress = client.engine_progress(build.build_id)
            if progress is not None and not progress.is_open:
                _note_end(build, progress)
            elif reason := lost_reason(build, progress, workers.get(build.worker_id), now):
                end(build, BuildState.FAILED, error=reason)
            elif progress is not None:
                _note_progress(build, progress)
    return EngineBuild.objects.filter(state__in=OPEN_STATES).count()


def lost_reason(
    build: EngineBuild, progress: EngineProgress | None, worker: WorkerInfo | None, now: datetime
) -> str:
    """Why no news will come any more, or empty while some may."""
    name = build.worker_id
    if worker is None:
        return f"Worker {name} is not known any more."
    if worker.is_gone:
        return f"Worker {name} {_END_WORDS[worker.state]} before the build had ended."
    heard = build.sent_at if progress is None else datetime.fromtimestamp(progress.at, UTC)
    assert heard is not None
    if progress is not None and worker.started_at > progress.at:
        return f"Worker {name} was restarted before the build had ended."
    if progress is None and now - heard > timedelta(seconds=ORDER_EXPIRES_S) + _GRACE:
        return f"Worker {name} did not take the build within {ORDER_EXPIRES_S} s."
    return ""


def _note_progress(build: EngineBuild, progress: EngineProgress) -> None:
    EngineBuild.objects.filter(pk=build.pk, state__in=OPEN_STATES).update(
        state=progress.state,
        phase=progress.phase[:255],
        fraction=max(build.fraction, progress.fraction),
    )


def _note_end(build: EngineBuild, progress: EngineProgress) -> None:
    state = BuildState(progress.state)
    error = progress.error
    if state == BuildState.FAILED and not error:
        error = "The worker gave no reason."
    end(
        build,
        state,
        error=error,
        fraction=progress.fraction if state == BuildState.SUCCEEDED else build.fraction,
        target_version=progress.version or None,
        engine_bytes=progress.engine_bytes or None,
        builder=progress.builder,
        finished_at=datetime.fromtimestamp(progress.at, UTC),
    )


def end(build: EngineBuild, state: BuildState, **values: object) -> None:
    """Once: whoever comes second changes nothing."""
    values.setdefault("finished_at", timezone.now())
    with transaction.atomic():
        ended = EngineBuild.objects.filter(pk=build.pk, state__in=OPEN_STATES).update(
            state=state, phase="", **values
        )
        if not ended:
            return
        audit.record(
            build.actor,
            f"build engine {state.value}",
            build.target,
            {"build": build.pk, "error": values.get("error", "")},
        )
    if state == BuildState.SUCCEEDED and selectors.model_exists(build.target):
        # The config that came with the engine becomes the first revision of a new model.
        configs.record_revision(
            build.target,
            configs.read_config(build.target),
            actor=build.actor,
            source=RevisionSource.FOUND,
            reason=f"Engine build {build.pk}",
        )
    logger.info(
        "engine build ended: id=%s state=%s model=%s target=%s",
        build.pk, state.value, build.model, build.target,
    )  # fmt: skip
