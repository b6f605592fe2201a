"""Uploads on their way into the repository, config revisions, and what lies in the trash.

The repository on disk is the truth about models; these tables hold what people did and wanted.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.urls import reverse

from console.repository.choices import OPEN_STATES, RevisionSource, UploadState

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from console.deployments.models import Deployment


class Upload(models.Model):
    deployments: RelatedManager[Deployment]

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(
        max_length=16, choices=UploadState.choices, default=UploadState.STAGED, db_index=True
    )
    file_name = models.CharField(max_length=255, blank=True)
    """Of the archive or bare file; empty for a folder."""
    wished_model = models.CharField(max_length=128, blank=True)
    wished_version = models.CharField(max_length=24, blank=True)
    """Empty: as in the files; `next`; or a number."""
    announced_bytes = models.BigIntegerField(null=True)
    received_bytes = models.BigIntegerField(default=0)
    announced_sha256 = models.CharField(max_length=64, blank=True)
    model = models.CharField(max_length=128, blank=True, db_index=True)
    """What the checks found the model to be called."""
    versions = models.JSONField(default=list)
    findings = models.JSONField(default=list)
    ignored = models.JSONField(default=list)
    manifest = models.JSONField(default=dict)
    """Path in the model directory -> {"bytes", "sha256"}."""
    config_text = models.TextField(blank=True)
    config_source = models.CharField(max_length=12, blank=True)
    """upload, edited, repository (taken over from the model that exists), or empty."""
    error = models.TextField(blank=True)
    publish_when_checked = models.BooleanField(default=False)
    load_when_published = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    checked_at = models.DateTimeField(null=True)
    published_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.file_name or self.model or 'folder'} ({self.state})"

    def get_absolute_url(self) -> str:
        return reverse("repository:upload_detail", args=[self.id])

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def error_count(self) -> int:
        return sum(finding["severity"] == "error" for finding in self.findings)

    @property
    def warning_count(self) -> int:
        return sum(finding["severity"] == "warning" for finding in self.findings)

    @property
    def can_publish(self) -> bool:
        return self.state == UploadState.CHECKED and self.error_count == 0


class ConfigRevision(models.Model):
    """One text that a model's config.pbtxt had; numbers count up per model."""

    model = models.CharField(max_length=128)
    number = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    is_absent = models.BooleanField(default=False)
    """The model had no config.pbtxt."""
    sha256 = models.CharField(max_length=64)
    source = models.CharField(max_length=12, choices=RevisionSource.choices)
    reason = models.CharField(max_length=255, blank=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    manifest = models.JSONField(default=dict)
    """Version -> {path: {"bytes", "sha256"}}; filled by a task, large files take their time."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "number"], name="one_number_per_model_revision"
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} r{self.number}"


class FileDigest(models.Model):
    """The sha256 of a file as it was at a size and time, so that it is read once only."""

    path = models.CharField(max_length=1024, unique=True)
    """Relative to the repository."""
    size = models.BigIntegerField()
    changed_ns = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.path} {self.sha256[:12]}"


class TrashEntry(models.Model):
    """A deleted version or model, kept in the trash folder until it is restored or purged."""

    model = models.CharField(max_length=128, db_index=True)
    version = models.CharField(max_length=24, blank=True)
    """Empty: the whole model directory."""
    folder = models.CharField(max_length=255)
    """Name inside the trash folder."""
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    restored_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.model}/{self.version}" if self.version else self.model
