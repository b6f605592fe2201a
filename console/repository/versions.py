"""Delete and restore versions and models; what is deleted lies in the trash folder until purged.

The trash is on the repository's file system, so that both ways are one rename.
"""

from __future__ import annotations

import os
import shutil
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.core import audit
from console.repository import configs, selectors, staging
from console.repository.errors import RefusedError
from console.repository.models import TrashEntry
from serving.errors import NotFoundError


def trash_root() -> Path:
    return staging.hidden_root() / "trash"


def delete_version_files(*, actor: Any, model: str, version: int) -> TrashEntry:
    """Move a version folder into the trash. Raises NotFoundError."""
    folder = configs.model_directory(model) / str(version)
    if not folder.is_dir():
        raise NotFoundError(f"'{model}' has no version {version} in the repository.")
    entry = _into_trash(actor, model, str(version), folder)
    audit.record(actor, "delete version", f"{model}/{version}", {"trash": entry.pk})
    return entry


def delete_model_files(*, actor: Any, model: str) -> TrashEntry:
    """Move the whole model directory into the trash. Raises NotFoundError."""
    folder = configs.model_directory(model)
    configs.current_revision(model)
    entry = _into_trash(actor, model, "", folder)
    audit.record(actor, "delete model", model, {"trash": entry.pk})
    return entry


def _into_trash(actor: Any, model: str, version: str, folder: Path) -> TrashEntry:
    name = f"{model}-{version or 'all'}-{uuid.uuid4().hex[:8]}"
    trash_root().mkdir(parents=True, exist_ok=True)
    with configs.model_lock(model), transaction.atomic():
        entry = TrashEntry.objects.create(model=model, version=version, folder=name, actor=actor)
        os.rename(folder, trash_root() / name)
    return entry


def restore(*, actor: Any, entry: TrashEntry) -> None:
    """Put a deleted version or model back. Raises RefusedError, NotFoundError."""
    source = trash_root() / entry.folder
    if entry.restored_at is not None or not source.is_dir():
        raise NotFoundError(f"'{entry}' is no longer in the trash.")
    target = configs.directory_for(entry.model)
    if entry.version:
        target = configs.model_directory(entry.model) / entry.version
    with configs.model_lock(entry.model), transaction.atomic():
        if target.exists():
            raise RefusedError(f"'{entry}' is in the repository again; delete that first.")
        entry.restored_at = timezone.now()
        entry.save(update_fields=["restored_at"])
        audit.record(actor, "restore", str(entry), {"trash": entry.pk})
        os.rename(source, target)


def restore_missing(*, actor: Any, model: str, versions: list[int]) -> list[int]:
    """Bring back from the trash what is missing of `versions`; returns what stays missing."""
    if not selectors.model_exists(model):
        whole = selectors.trash_for(model).filter(version="").first()
        if whole is not None:
            restore(actor=actor, entry=whole)
    present = set(selectors.versions_on_disk(model))
    missing = []
    for version in sorted(set(versions) - present):
        entry = selectors.trash_for(model).filter(version=str(version)).first()
        if entry is None or not selectors.model_exists(model):
            missing.append(version)
        else:
            restore(actor=actor, entry=entry)
    return missing


def purge_trash() -> int:
    """Remove for good what was deleted longer ago than CONCH_TRASH_DAYS; returns how many."""
    before = timezone.now() - timedelta(days=settings.CONCH_TRASH_DAYS)
    old = selectors.trash().filter(created_at__lt=before)
    count = 0
    for entry in old:
        shutil.rmtree(trash_root() / entry.folder, ignore_errors=True)
        entry.delete()
        count += 1
    return count
