"""Move a checked upload into the repository: all of it or nothing.

A new model is one rename of its directory. For a model that exists each version is one rename, then
the config is replaced by a rename; a failure on the way undoes what was done, in reverse. The
model's file lock is held throughout. Web threads and the control process enter.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.core import audit
from console.repository import configs, selectors, staging
from console.repository.arrange import CONFIG_NAME
from console.repository.choices import RevisionSource, UploadState
from console.repository.errors import PublishConflictError, RefusedError
from console.repository.models import ConfigRevision, Upload
from serving.errors import InternalError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Undo:
    """Steps that take a publication back."""

    steps: list[Callable[[], object]] = field(default_factory=list)

    def move(self, source: Path, target: Path) -> None:
        """Rename, and remember the way back. Never over something that exists."""
        if target.exists():
            raise RefusedError(f"'{target.name}' is already in the repository.")
        os.rename(source, target)
        self.steps.append(lambda: os.rename(target, source))

    def revert(self) -> None:
        """Take back what can be taken back; a step that fails does not stop the others."""
        for step in reversed(self.steps):
            try:
                step()
            except OSError:
                logger.exception("a step of an undone publication failed")


def publish_upload(*, actor: Any, upload: Upload) -> ConfigRevision:
    """Publish a checked upload without errors. Raises RefusedError, PublishConflictError.

    The upload row, the config revision and the audit entry are one transaction with the files.
    """
    try:
        with staging.area(upload.id).lock():
            upload.refresh_from_db()
            if upload.state == UploadState.CHECKED and upload.model:
                with configs.model_lock(upload.model):
                    return _publish_locked(actor, upload)
    except FileNotFoundError as error:
        raise RefusedError(_gone(upload)) from error
    raise RefusedError(_gone(upload))


def _gone(upload: Upload) -> str:
    return f"The upload is {upload.state}; only a checked upload can be published."


def _publish_locked(actor: Any, upload: Upload) -> ConfigRevision:
    undo = Undo()
    try:
        with transaction.atomic():
            _check_publishable(upload)
            revision = _publish_files(actor, upload, undo)
            upload.state = UploadState.PUBLISHED
            upload.published_at = timezone.now()
            upload.save(update_fields=["state", "published_at", "updated_at"])
            audit.record(actor, "publish upload", upload.model, _audit_detail(upload, revision))
            transaction.on_commit(staging.area(upload.id).remove)
    except OSError as error:
        undo.revert()
        raise InternalError(
            f"The files of '{upload.model}' could not be moved into the repository "
            f"({error.strerror}); nothing was published."
        ) from error
    except BaseException:
        undo.revert()
        raise
    return revision


def _audit_detail(upload: Upload, revision: ConfigRevision) -> dict[str, object]:
    return {
        "upload": str(upload.id),
        "versions": upload.versions,
        "revision": revision.number,
        "files": len(upload.manifest),
    }


def _check_publishable(upload: Upload) -> None:
    if upload.error_count:
        raise RefusedError(
            f"The checks found {upload.error_count} error(s); mend them first.",
            findings=upload.findings,
        )
    taken = set(selectors.versions_on_disk(upload.model))
    clashes = sorted(taken & set(upload.versions))
    if clashes:
        raise PublishConflictError(
            f"Version {clashes[0]} of '{upload.model}' is already in the repository. "
            f"Publish as the next version ({max(taken) + 1}) or under another name.",
            next_version=max(taken) + 1,
        )


def _publish_files(actor: Any, upload: Upload, undo: Undo) -> ConfigRevision:
    model = upload.model
    staged = staging.area(upload.id).model_directory(model)
    if not staged.is_dir():
        raise RefusedError("The staged files are gone; upload them again.")
    text = upload.config_text if upload.config_source else None
    target = configs.directory_for(model)
    if not target.exists():
        undo.move(staged, target)
        return configs.record_revision(
            model, text, actor=actor, source=RevisionSource.UPLOAD, reason=_reason(upload)
        )
    configs.current_revision(model)
    for version in upload.versions:
        undo.move(staged / str(version), target / str(version))
    _publish_extras(staged, target, upload, undo)
    if upload.config_source in ("upload", "edited"):
        before = configs.read_config(model)
        undo.steps.append(lambda: configs.write_config(model, before))
        configs.write_config(model, text)
        return configs.record_revision(
            model, text, actor=actor, source=RevisionSource.UPLOAD, reason=_reason(upload)
        )
    return configs.current_revision(model)


def _reason(upload: Upload) -> str:
    if not upload.versions:
        return "Config uploaded"
    listed = ", ".join(str(version) for version in upload.versions)
    return f"Published version {listed}"


def _publish_extras(staged: Path, target: Path, upload: Upload, undo: Undo) -> None:
    """Label files, warm-up data: they replace what the model has of the same name."""
    versions = {str(version) for version in upload.versions}
    kept = staging.area(upload.id).root / f"replaced-{uuid.uuid4().hex}"
    for path in sorted(staged.iterdir()):
        if path.name == CONFIG_NAME or path.name in versions or path.is_symlink():
            continue
        existing = target / path.name
        if existing.exists():
            kept.mkdir(exist_ok=True)
            undo.move(existing, kept / path.name)
        undo.move(path, existing)
