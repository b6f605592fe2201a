"""The job that unpacks an upload, works out its layout and checks it.

Runs in the control process (task `check_upload`); a re-check after an edit runs in the web request,
because nothing is unpacked then. Expected refusals end in FAILED, anything else in ERRORED with its
traceback; what the person can still mend (a name, a version, the config) ends in CHECKED with
findings.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.utils import timezone

from console.repository import arrange, checks, configs, selectors, staging, uploads
from console.repository.archive import ArchiveLimits, ArchiveRefusedError, archive_kind, extract
from console.repository.arrange import CONFIG_NAME, Arrangement, ArrangementError, Wish
from console.repository.choices import UploadState
from console.repository.errors import RefusedError
from console.repository.models import Upload
from console.repository.names import ClashGuard, NameRefusedError
from serving.config.findings import Finding, Severity

logger = logging.getLogger(__name__)


def validate_upload(upload_id: str) -> Upload | None:
    """Unpack and check; returns the upload, or None when it is not waiting for that."""
    place = staging.area(upload_id)
    if not place.root.is_dir():
        return None
    # A second run of the same task (redelivery, sweep) waits here and then finds nothing to do.
    with place.lock():
        upload = Upload.objects.filter(pk=upload_id, state=UploadState.CHECKING).first()
        if upload is not None:
            _validate(upload)
    return upload


def _validate(upload: Upload) -> None:
    try:
        uploads.verify_announced_digest(upload)
        unpack(upload)
        _check(upload)
    except (ArchiveRefusedError, NameRefusedError, RefusedError) as error:
        _finish(upload, UploadState.FAILED, error=str(error), findings=[_refusal(str(error))])
        staging.area(upload.id).remove()
    except Exception as error:
        logger.exception("the check of an upload broke: upload=%s", upload.id)
        text = f"The check broke: {type(error).__name__}: {error}"
        _finish(upload, UploadState.ERRORED, error=f"{text}\n\n{traceback.format_exc()}")


def check_again(upload: Upload) -> Upload:
    """Lay out and check once more, from the unpacked files. Raises RefusedError."""
    try:
        with staging.area(upload.id).lock():
            state = Upload.objects.values_list("state", flat=True).get(pk=upload.pk)
            if state != UploadState.CHECKED:
                raise RefusedError(f"The upload is {state} meanwhile; nothing was changed.")
            _check(upload)
    except FileNotFoundError as error:
        raise RefusedError("The staged files are gone; upload them again.") from error
    return upload


def _refusal(message: str) -> Finding:
    return Finding(Severity.ERROR, message, file="", code="UPLOAD")


def _finish(
    upload: Upload, state: UploadState, *, error: str = "", findings: list[Finding] | None = None
) -> None:
    """Store the outcome, unless the upload was discarded meanwhile."""
    upload.state = state
    upload.error = error
    upload.findings = checks.as_rows(findings or [])
    upload.checked_at = timezone.now()
    fields = (
        "state", "error", "findings", "checked_at", "model", "versions", "ignored", "manifest",
        "config_text", "config_source",
    )  # fmt: skip
    values: dict[str, Any] = {name: getattr(upload, name) for name in fields}
    open_row = Upload.objects.filter(
        pk=upload.pk, state__in=[UploadState.CHECKING, UploadState.CHECKED]
    )
    if not open_row.update(updated_at=timezone.now(), **values):
        upload.refresh_from_db()


def unpack(upload: Upload) -> None:
    """Fill `unpacked/` once; a run that was cut off starts from nothing."""
    place = staging.area(upload.id)
    if place.unpacked.is_dir():
        return
    partial = staging.StagingArea(place.root / "unpacking")
    partial.remove()
    kind = archive_kind(upload.file_name)
    if kind:
        partial.root.mkdir(parents=True)
        extraction = extract(
            place.incoming / upload.file_name, partial.root, kind=kind, limits=limits()
        )
        upload.ignored = extraction.ignored
    else:
        clashes = ClashGuard()
        for path in staging.list_files(place.incoming):
            clashes.add(path)
        upload.ignored = staging.take_files(place.incoming, partial.root)
    partial.root.rename(place.unpacked)


def limits() -> ArchiveLimits:
    return ArchiveLimits(
        max_files=settings.CONCH_UPLOAD_MAX_FILES,
        max_file_bytes=settings.CONCH_UPLOAD_MAX_BYTES,
        max_total_bytes=2 * settings.CONCH_UPLOAD_MAX_BYTES,
        keep_free_bytes=settings.CONCH_KEEP_FREE_BYTES,
    )


def _check(upload: Upload) -> None:
    place = staging.area(upload.id)
    paths = staging.list_files(place.unpacked)
    findings = _ignored_notes(upload.ignored)
    own_config = _own_config(place, paths)
    try:
        arrangement = arrange.arrange(
            paths,
            Wish(upload.wished_model, upload.wished_version),
            archive_stem=_stem(upload.file_name),
            config_text=own_config or "",
            taken_versions=selectors.versions_on_disk,
        )
    except ArrangementError as error:
        upload.config_text, upload.config_source = own_config or "", "upload" if own_config else ""
        _finish(upload, UploadState.CHECKED, findings=[*findings, error.as_finding()])
        return
    findings += [*arrangement.notes, *_conflicts(arrangement)]
    findings += _check_arranged(upload, place, arrangement, own_config)
    _finish(upload, UploadState.CHECKED, findings=findings)


def _check_arranged(
    upload: Upload, place: staging.StagingArea, arrangement: Arrangement, own_config: str | None
) -> list[Finding]:
    """Build the model directory in staging and run the rules on it."""
    text, source = _effective_config(place, arrangement, own_config)
    directory = staging.build(place, arrangement, text)
    known = dict(upload.manifest) if upload.model == arrangement.model else {}
    upload.model, upload.versions = arrangement.model, arrangement.versions
    upload.config_text, upload.config_source = text or "", source
    upload.manifest = staging.manifest(directory, staging.list_files(directory), known)
    if not arrangement.versions:
        _borrow_versions(arrangement.model, directory)
    return checks.check_directory(directory)


def _effective_config(
    place: staging.StagingArea, arrangement: Arrangement, own_config: str | None
) -> tuple[str | None, str]:
    """What was typed wins over what was uploaded, that over what the repository has."""
    if place.edited_config.is_file():
        return place.edited_config.read_text(encoding="utf-8"), "edited"
    if own_config is not None and arrangement.has_config:
        return own_config, "upload"
    if selectors.model_exists(arrangement.model):
        current = configs.read_config(arrangement.model)
        if current is not None:
            return current, "repository"
    return None, ""


def _own_config(place: staging.StagingArea, paths: list[PurePosixPath]) -> str | None:
    try:
        path = arrange.config_path(paths)
    except ArrangementError:
        return None
    if path is None:
        return None
    file = place.unpacked / path
    if file.stat().st_size > configs.MAX_CONFIG_BYTES:
        raise RefusedError(f"'{path}' is larger than {configs.MAX_CONFIG_BYTES} bytes.")
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(
            f"'{path}' is not UTF-8 text (byte {error.start}). Save it as UTF-8."
        ) from error


def _borrow_versions(model: str, directory: Path) -> None:
    """A bare config is checked against the versions that the repository has."""
    if selectors.model_exists(model):
        for version in selectors.versions_on_disk(model):
            (directory / str(version)).symlink_to(
                configs.model_directory(model) / str(version), target_is_directory=True
            )


def _conflicts(arrangement: Arrangement) -> list[Finding]:
    taken = set(selectors.versions_on_disk(arrangement.model))
    clashes = sorted(taken & set(arrangement.versions))
    if not clashes:
        return []
    listed = ", ".join(str(version) for version in clashes)
    return [
        Finding(
            Severity.ERROR,
            f"Version {listed} of '{arrangement.model}' is already in the repository.",
            f"Choose the next version ({max(taken) + 1}), or another model name.",
            field="version",
            file="",
            code="UPLOAD",
        )
    ]


def _ignored_notes(ignored: list[str]) -> list[Finding]:
    if not ignored:
        return []
    shown = ", ".join(f"'{name}'" for name in ignored[:3])
    more = f" and {len(ignored) - 3} more" if len(ignored) > 3 else ""
    return [Finding(Severity.NOTE, f"Left out: {shown}{more}.", file="", code="UPLOAD")]


def _stem(file_name: str) -> str:
    for end in (".tar.gz", ".tar.bz2", ".tar.xz", ".zip", ".tar", ".tgz", ".tbz2", ".txz"):
        if file_name.lower().endswith(end):
            return file_name[: -len(end)]
    return "" if file_name == CONFIG_NAME else file_name.rpartition(".")[0]
