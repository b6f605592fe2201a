"""States and kinds of uploads and config revisions; words and shapes are in `core.choices`."""

from __future__ import annotations

from django.db import models


class UploadState(models.TextChoices):
    STAGED = "staged", "Staged"
    """Files arrive."""
    CHECKING = "checking", "Checking"
    CHECKED = "checked", "Checked"
    PUBLISHED = "published", "Published"
    DISCARDED = "discarded", "Discarded"
    FAILED = "failed", "Failed"
    """The archive is refused: expected, the findings say why."""
    ERRORED = "errored", "Errored"
    """The check itself broke: unexpected, with a traceback."""


OPEN_STATES = (UploadState.STAGED, UploadState.CHECKING, UploadState.CHECKED)


class RevisionSource(models.TextChoices):
    FOUND = "found", "Found on disk"
    UPLOAD = "upload", "Upload"
    EDIT = "edit", "Edit"
    POLICY = "policy", "Version policy"
    ROLLBACK = "rollback", "Roll back"
