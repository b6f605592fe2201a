"""Uploads until they are publishable: receive, complete, check, mend, discard.

Web threads receive bytes and change wishes; the control process checks. Every function that
changes an upload writes the audit log. Sources: design/architecture.md section 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import IO, Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from console.core import audit
from console.core.background import start_on_commit
from console.repository import staging
from console.repository.arrange import CONFIG_NAME, NEXT_VERSION
from console.repository.choices import OPEN_STATES, UploadState
from console.repository.configs import MAX_CONFIG_BYTES
from console.repository.errors import LostUpdateError, RefusedError, disk_faults
from console.repository.models import Upload
from console.repository.names import (
    NameRefusedError,
    check_model_name,
    check_version,
    safe_relative_path,
)


@disk_faults()
def create_upload(
    *,
    actor: Any,
    file_name: str = "",
    model: str = "",
    version: str = "",
    announced_bytes: int | None = None,
    sha256: str = "",
    publish: bool = False,
    load: bool = False,
) -> Upload:
    """Open an upload; its files follow. Raises RefusedError with fields."""
    _check_wish(model, version)
    if file_name:
        file_name = _checked_path(file_name, "file_name")
    if announced_bytes is not None and announced_bytes > settings.CONCH_UPLOAD_MAX_BYTES:
        raise _too_large("size")
    if sha256 and (len(sha256) != 64 or any(char not in "0123456789abcdef" for char in sha256)):
        raise RefusedError(
            "sha256 must be 64 hexadecimal digits in lower case.",
            fields={"sha256": ["Write 64 hexadecimal digits in lower case."]},
        )
    upload = Upload(
        actor=actor,
        file_name=file_name,
        wished_model=model.strip(),
        wished_version=version.strip(),
        announced_bytes=announced_bytes,
        announced_sha256=sha256,
        publish_when_checked=publish or load,
        load_when_published=load,
    )
    staging.area(upload.id).create()
    upload.save()
    audit.record(actor, "create upload", str(upload.id), {"file": file_name, "model": model})
    return upload


def _too_large(field: str) -> RefusedError:
    limit = settings.CONCH_UPLOAD_MAX_BYTES
    text = f"An upload may have at most {limit} bytes (CONCH_UPLOAD_MAX_BYTES)."
    return RefusedError(text, fields={field: [text]})


def _checked_path(name: str, field: str) -> str:
    try:
        return str(safe_relative_path(name))
    except NameRefusedError as error:
        raise RefusedError(str(error), fields={field: [str(error)]}) from error


def _check_wish(model: str, version: str) -> None:
    try:
        if model.strip():
            check_model_name(model)
    except NameRefusedError as error:
        raise RefusedError(str(error), fields={"model": [str(error)]}) from error
    try:
        if version.strip() and version.strip() != NEXT_VERSION:
            check_version(version)
    except NameRefusedError as error:
        raise RefusedError(str(error), fields={"version": [str(error)]}) from error


@disk_faults()
def receive(upload: Upload, source: IO[bytes], *, path: str = "", offset: int = 0) -> int:
    """Append bytes to one file of the upload; returns how many it has now.

    Raises RefusedError, staging.OffsetMismatchError.
    """
    if upload.state != UploadState.STAGED:
        raise RefusedError(f"The upload is {upload.state}; it takes no more files.")
    path = _checked_path(path or upload.file_name or "", "path")
    place = staging.area(upload.id)
    before = place.received_bytes(path)
    others = upload.received_bytes - before
    limit = upload.announced_bytes or settings.CONCH_UPLOAD_MAX_BYTES
    try:
        size = staging.append(place, path, source, offset=offset, limit=max(0, limit - others))
    except staging.StagingFullError as error:
        raise RefusedError(str(error), fields={"content": [str(error)]}) from error
    except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        text = f"'{path}' is both a file and a folder in this upload."
        raise RefusedError(text, fields={"path": [text]}) from error
    finally:
        arrived = place.received_bytes(path) - before
        Upload.objects.filter(pk=upload.pk).update(received_bytes=F("received_bytes") + arrived)
    upload.refresh_from_db(fields=["received_bytes"])
    return size


def complete_upload(*, actor: Any, upload: Upload) -> Upload:
    """All files are here: start the checks. Raises RefusedError."""
    with transaction.atomic():
        upload = Upload.objects.select_for_update().get(pk=upload.pk)
        if upload.state != UploadState.STAGED:
            raise RefusedError(f"The upload is {upload.state}; it cannot be completed again.")
        if not upload.received_bytes and not staging.list_files(staging.area(upload.id).incoming):
            raise RefusedError("The upload holds no files yet.")
        if upload.announced_bytes not in (None, upload.received_bytes):
            raise RefusedError(
                f"{upload.received_bytes} of {upload.announced_bytes} bytes have arrived; "
                "send the rest first."
            )
        _start_check(upload)
    audit.record(actor, "complete upload", str(upload.id), {"bytes": upload.received_bytes})
    return upload


def _start_check(upload: Upload) -> None:
    from console.repository.tasks import check_upload

    upload.state = UploadState.CHECKING
    upload.save(update_fields=["state", "updated_at"])
    start_on_commit(check_upload, str(upload.id))


def stage_upload(*, actor: Any, files: Iterable[tuple[str, IO[bytes]]], **wishes: Any) -> Upload:
    """A whole upload at once (a form): receive every file, then start the checks."""
    pairs = list(files)
    if not pairs:
        raise RefusedError("Choose a file.", fields={"files": ["Choose a file."]})
    single = pairs[0][0] if len(pairs) == 1 and "/" not in pairs[0][0] else ""
    upload = create_upload(actor=actor, file_name=single, **wishes)
    try:
        for path, source in pairs:
            receive(upload, source, path=path)
        return complete_upload(actor=actor, upload=upload)
    except (RefusedError, staging.OffsetMismatchError) as error:
        discard_upload(actor=actor, upload=upload)
        if isinstance(error, staging.OffsetMismatchError):
            raise RefusedError("Two files of the upload have the same name.") from error
        raise


def verify_announced_digest(upload: Upload) -> None:
    """Raises RefusedError when the archive is not the one that the sender announced."""
    if not upload.announced_sha256:
        return
    digest = hashlib.sha256()
    place = staging.area(upload.id)
    for path in staging.list_files(place.incoming):
        with (place.incoming / path).open("rb") as file:
            while chunk := file.read(staging.COPY_BYTES):
                digest.update(chunk)
    if digest.hexdigest() != upload.announced_sha256:
        raise RefusedError(
            "The sha256 of what arrived differs from the one announced. Upload the file again."
        )


@disk_faults()
def edit_config(
    *, actor: Any, upload: Upload, text: str, expected_sha256: str | None = None
) -> Upload:
    """Save a config text within staging and check again, at once.

    Raises RefusedError, LostUpdateError. The repository is not touched.
    """
    from console.repository import validation

    _check_mendable(upload)
    if len(text.encode("utf-8")) > MAX_CONFIG_BYTES:
        limit = f"A config may have at most {MAX_CONFIG_BYTES} bytes."
        raise RefusedError(limit, fields={"text": [limit]})
    current = upload.config_text
    if expected_sha256 not in (None, staging.text_sha256(current)):
        raise LostUpdateError(
            "This config was changed in the upload since you opened it; nothing was saved.",
            current_text=current,
            current_sha256=staging.text_sha256(current),
        )
    staging.write_text(staging.area(upload.id).edited_config, text)
    audit.record(actor, "edit upload", str(upload.id), {"file": CONFIG_NAME})
    return validation.check_again(upload)


@disk_faults()
def change_wish(*, actor: Any, upload: Upload, model: str, version: str) -> Upload:
    """Another name or version for an upload that is checked; checks again, at once."""
    from console.repository import validation

    _check_mendable(upload)
    _check_wish(model, version)
    upload.wished_model, upload.wished_version = model.strip(), version.strip()
    upload.save(update_fields=["wished_model", "wished_version", "updated_at"])
    audit.record(actor, "edit upload", str(upload.id), {"model": model, "version": version})
    return validation.check_again(upload)


def _check_mendable(upload: Upload) -> None:
    if upload.state != UploadState.CHECKED:
        raise RefusedError(f"The upload is {upload.state}; only a checked upload can be edited.")


def discard_upload(*, actor: Any, upload: Upload) -> Upload:
    """Throw the files away; the row stays as history. Raises RefusedError."""
    changed = Upload.objects.filter(
        pk=upload.pk, state__in=[*OPEN_STATES, UploadState.FAILED, UploadState.ERRORED]
    ).update(state=UploadState.DISCARDED)
    if not changed:
        raise RefusedError(f"The upload is {upload.state}; there is nothing to discard.")
    staging.area(upload.id).remove()
    audit.record(actor, "discard upload", str(upload.id), {"model": upload.model})
    upload.refresh_from_db()
    return upload
