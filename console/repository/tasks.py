"""Celery tasks of the repository, on the console's queue; each takes ids and may run twice."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from console.core.background import send
from console.repository import selectors, services, staging, validation, versions
from console.repository.choices import UploadState
from console.repository.models import ConfigRevision, Upload
from serving.errors import ServingError

logger = logging.getLogger(__name__)

CHECK_LOST_AFTER = timedelta(minutes=5)


@shared_task  # type: ignore[untyped-decorator]
def check_upload(upload_id: str) -> None:
    """Unpack and check; then publish and load where the sender asked for it."""
    upload = validation.validate_upload(upload_id)
    if upload is None or not upload.publish_when_checked or not upload.can_publish:
        return
    try:
        services.publish(actor=upload.actor, upload=upload, load=upload.load_when_published)
    except ServingError as error:
        Upload.objects.filter(pk=upload.pk).update(error=str(error))


@shared_task  # type: ignore[untyped-decorator]
def record_manifest(revision_id: int) -> None:
    """Note the hashes of the version files that a config revision stood beside."""
    revision = ConfigRevision.objects.filter(pk=revision_id).first()
    if revision is None:
        return
    manifest = {}
    for version in selectors.versions_on_disk(revision.model):
        prefix = f"{revision.model}/{version}"
        manifest[str(version)] = {
            path: {"sha256": selectors.digest_of(f"{prefix}/{path}")}
            for path in selectors.version_files(revision.model, version)
        }
    ConfigRevision.objects.filter(pk=revision_id).update(manifest=manifest)


@shared_task  # type: ignore[untyped-decorator]
def sweep_uploads() -> None:
    """Start checks that got lost, discard what nobody finished, purge old trash."""
    lost = Upload.objects.filter(
        state=UploadState.CHECKING, updated_at__lt=timezone.now() - CHECK_LOST_AFTER
    )
    for upload in lost:
        send(check_upload, str(upload.id))
    services.discard_stale_uploads()
    versions.purge_trash()
    staging.remove_strays(keep=_kept_ids())


def _kept_ids() -> set[str]:
    return {str(key) for key in selectors.open_uploads().values_list("pk", flat=True)}


BEAT = {
    "repository-sweep-uploads": {
        "task": "console.repository.tasks.sweep_uploads",
        "schedule": 300.0,
    }
}
