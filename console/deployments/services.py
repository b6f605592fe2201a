"""Deployments: every load, unload and roll back starts here, as a durable row.

A function stores what is wanted and a `Deployment`, then starts the task that talks to workers,
once the transaction is committed. Raises `ServingError` subclasses with a sentence for the person.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import transaction

from console.core import audit
from console.core import workers as fleet
from console.core.background import start_on_commit
from console.deployments import desired
from console.deployments.choices import OPEN_STATES, Action, Trigger, WantedState
from console.deployments.models import Deployment, DesiredModel
from console.deployments.restore import restore_config, versions_to_restore
from console.repository import configs, selectors
from console.repository.versions import restore_missing
from serving.errors import InvalidArgumentError, NotFoundError, UnavailableError
from workers.messages import WorkerInfo

if TYPE_CHECKING:
    from console.repository.models import ConfigRevision, Upload


@audit.records_refusals("load model", "model")
def load_model(
    *,
    actor: Any,
    model: str,
    worker_ids: Sequence[str] | None = None,
    versions: Sequence[int] | None = None,
    reason: str = "",
    upload: Upload | None = None,
    retry_of: Deployment | None = None,
) -> Deployment:
    """Want `model` served and load it, by its version policy or exactly `versions`.

    `worker_ids` None means every worker, those that come later included.
    Raises NotFoundError, InvalidArgumentError.
    """
    configs.model_directory(model)
    _check_versions(model, versions)
    _check_workers(worker_ids)
    # Before the transaction, here and below: others wait for it, and Redis may take its time.
    served = _served_versions(model)
    with transaction.atomic():
        deployment = _create(
            Action.LOAD,
            actor=actor,
            model=model,
            worker_ids=worker_ids,
            versions=versions,
            reason=reason,
            previous_versions=served,
            upload=upload,
            retry_of=retry_of,
        )
        desired.wish(deployment, WantedState.LOADED, worker_ids=worker_ids, versions=versions)
        return _start(deployment)


@audit.records_refusals("unload model", "model")
def unload_model(
    *,
    actor: Any,
    model: str,
    version: int | None = None,
    worker_ids: Sequence[str] | None = None,
    unload_dependents: bool = False,
    reason: str = "",
    retry_of: Deployment | None = None,
) -> Deployment:
    """Want `model`, or one version of it, no longer served, and unload it.

    Raises NotFoundError, InvalidArgumentError.
    """
    _check_known(model)
    _check_workers(worker_ids)
    served, served_there = _served_versions(model), _served_versions(model, worker_ids)
    with transaction.atomic():
        deployment = _create(
            Action.UNLOAD,
            actor=actor,
            model=model,
            worker_ids=worker_ids,
            versions=None if version is None else [version],
            reason=reason,
            previous_versions=served,
            retry_of=retry_of,
            unload_dependents=unload_dependents,
        )
        remaining = _remaining(model, version, served_there)
        state = WantedState.LOADED if remaining else WantedState.UNLOADED
        desired.wish(deployment, state, worker_ids=worker_ids, versions=remaining or None)
        return _start(deployment)


@audit.records_refusals("rollback model", "deployment")
def rollback(*, actor: Any, deployment: Deployment) -> Deployment:
    """Restore what was wanted and served before `deployment`: config, policy, versions, workers.

    Versions that were deleted since come back from the trash. Raises InvalidArgumentError.
    """
    if deployment.is_open:
        raise InvalidArgumentError(f"Deployment {deployment.pk} still runs; wait for its end.")
    model = deployment.model
    versions = [int(item) for item in deployment.previous_versions]
    missing = restore_missing(actor=actor, model=model, versions=versions)
    if missing:
        raise InvalidArgumentError(
            f"Version {missing[0]} of '{model}' is neither in the repository nor in the trash, "
            "so what was served before cannot be restored."
        )
    before: ConfigRevision | None = None
    revision: ConfigRevision | None = None
    if selectors.model_exists(model):
        before = configs.current_revision(model)
        revision = restore_config(actor=actor, deployment=deployment)
    # Files first, each under its model's lock; a transaction must not wait for those.
    served = _served_versions(model)
    with transaction.atomic():
        new = _create(
            Action.ROLLBACK,
            actor=actor,
            model=model,
            worker_ids=None,
            versions=None,
            reason=f"Undo deployment {deployment.pk}",
            previous_versions=served,
            rollback_of=deployment,
        )
        new.previous_revision, new.revision = before, revision
        new.versions = versions_to_restore(deployment)
        new.save(update_fields=["previous_revision", "revision", "versions"])
        desired.replace(new, _rows_before(deployment, new.versions))
        return _start(new)


def _rows_before(deployment: Deployment, versions: list[int] | None) -> list[dict[str, Any]]:
    """The old rows; those that followed the policy are pinned where the policy would differ now."""
    rows = [dict(row) for row in deployment.previous_desired]
    if not rows:
        return [{"worker_id": "", "state": WantedState.UNLOADED, "versions": None}]
    for row in rows:
        if row["state"] == WantedState.LOADED and row["versions"] is None:
            row["versions"] = versions
    return rows


def retry(*, actor: Any, deployment: Deployment) -> Deployment:
    """Do the same again. Raises NotFoundError, InvalidArgumentError."""
    if deployment.is_open:
        raise InvalidArgumentError(f"Deployment {deployment.pk} still runs; wait for its end.")
    if deployment.action == Action.ROLLBACK:
        if deployment.rollback_of is None:
            raise InvalidArgumentError("The deployment that this undid is no longer known.")
        return rollback(actor=actor, deployment=deployment.rollback_of)
    if deployment.action == Action.UNLOAD:
        return unload_model(
            actor=actor,
            model=deployment.model,
            version=deployment.versions[0] if deployment.versions else None,
            worker_ids=deployment.worker_ids,
            unload_dependents=deployment.unload_dependents,
            reason=f"Retry of deployment {deployment.pk}",
            retry_of=deployment,
        )
    return load_model(
        actor=actor,
        model=deployment.model,
        worker_ids=deployment.worker_ids,
        versions=deployment.versions,
        reason=f"Retry of deployment {deployment.pk}",
        upload=deployment.upload,
        retry_of=deployment,
    )


def reconcile_model(
    *,
    model: str,
    is_load: bool,
    worker_ids: Sequence[str],
    versions: Sequence[int] | None,
    reason: str,
) -> Deployment:
    """An operation of the reconciler: what is wanted stays as it is."""
    action = Action.LOAD if is_load else Action.UNLOAD
    served = _served_versions(model)
    with transaction.atomic():
        deployment = _create(
            action,
            actor=None,
            model=model,
            worker_ids=worker_ids,
            versions=versions,
            reason=reason,
            previous_versions=served,
            trigger=Trigger.RECONCILER,
        )
        return _start(deployment)


def workers_serving(model: str, version: int | None = None) -> list[str]:
    """Workers that serve the model, or one version of it, as their last heartbeat said."""
    return sorted(
        worker.worker_id
        for worker in _known_workers()
        if not worker.is_gone
        for row in worker.models[:]
        if row.name == model
        and row.state in ("READY", "LOADING")
        and (version is None or row.version in (str(version), ""))
    )


def check_idle(model: str) -> None:
    """Raises InvalidArgumentError while a deployment of the model runs: heartbeats lag behind."""
    running = Deployment.objects.filter(model=model, state__in=OPEN_STATES).first()
    if running is not None:
        raise InvalidArgumentError(f"Deployment {running.pk} of '{model}' still runs; wait for it.")


def forget_model(model: str) -> None:
    """A deleted model is not wanted any more; its history stays."""
    DesiredModel.objects.filter(model=model).delete()


def _known_workers() -> list[WorkerInfo]:
    return fleet.known()[0]


def _served_versions(model: str, worker_ids: Sequence[str] | None = None) -> list[int]:
    return sorted(
        {
            int(row.version)
            for worker in _known_workers()
            if not worker.is_gone and (worker_ids is None or worker.worker_id in worker_ids)
            for row in worker.models
            if row.name == model and row.state == "READY" and row.version.isdigit()
        }
    )


def _remaining(model: str, version: int | None, served: Sequence[int]) -> list[int]:
    """What is still wanted after one version is taken away; empty: nothing."""
    if version is None:
        return []
    wanted = {item for row in desired.snapshot(model) for item in row["versions"] or []} or set(
        served
    )
    if version not in wanted:
        raise NotFoundError(f"Version {version} of '{model}' is not served.")
    return sorted(wanted - {version})


def _check_known(model: str) -> None:
    """A model that left the disk can still be unloaded; one nobody ever heard of cannot."""
    if selectors.model_exists(model) or DesiredModel.objects.filter(model=model).exists():
        return
    if not any(row.name == model for worker in _known_workers() for row in worker.models):
        raise NotFoundError(f"There is no model '{model}', neither in the repository nor served.")


def _check_versions(model: str, versions: Sequence[int] | None) -> None:
    if versions is None:
        return
    if not versions:
        raise InvalidArgumentError("Name at least one version, or none at all for the policy.")
    missing = sorted(set(versions) - set(selectors.versions_on_disk(model)))
    if missing:
        raise NotFoundError(f"'{model}' has no version {missing[0]} in the repository.")


def _check_workers(worker_ids: Sequence[str] | None) -> None:
    if worker_ids is None:
        return
    if not worker_ids:
        raise InvalidArgumentError("Name at least one worker, or none at all for every worker.")
    workers, problem = fleet.known()
    if problem:
        raise UnavailableError(problem)
    unknown = sorted(set(worker_ids) - {worker.worker_id for worker in workers})
    if unknown:
        names = ", ".join(sorted(worker.worker_id for worker in workers)) or "none"
        raise NotFoundError(f"There is no worker '{unknown[0]}'. Known workers: {names}.")


def _create(
    action: Action,
    *,
    actor: Any,
    model: str,
    worker_ids: Sequence[str] | None,
    versions: Sequence[int] | None,
    reason: str,
    **more: Any,
) -> Deployment:
    revision = configs.current_revision(model) if selectors.model_exists(model) else None
    previous = (
        Deployment.objects.filter(model=model, state="succeeded").exclude(revision=None).first()
    )
    return Deployment.objects.create(
        action=action,
        actor=actor,
        model=model,
        worker_ids=None if worker_ids is None else list(worker_ids),
        versions=None if versions is None else sorted(set(versions)),
        reason=reason[:255],
        revision=revision,
        previous_revision=previous.revision if previous else revision,
        previous_desired=desired.snapshot(model),
        **more,
    )


def _start(deployment: Deployment) -> Deployment:
    from console.deployments.tasks import dispatch_deployment

    deployment.desired = desired.snapshot(deployment.model)
    deployment.save(update_fields=["desired"])
    audit.record(
        deployment.actor,
        f"{deployment.action} model",
        deployment.model,
        {
            "deployment": deployment.pk,
            "versions": deployment.versions,
            "workers": deployment.worker_ids,
            "reason": deployment.reason,
        },
    )
    start_on_commit(dispatch_deployment, deployment.pk)
    return deployment
