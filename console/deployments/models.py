"""What people want served (`DesiredModel`) and what was done about it (`Deployment`)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.urls import reverse

from console.deployments.choices import (
    OPEN_STATES,
    Action,
    DeploymentState,
    TargetState,
    Trigger,
    WantedState,
)

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager


class Deployment(models.Model):
    """One durable operation on a model: who wanted what, and how it went on every worker."""

    targets: RelatedManager[DeploymentTarget]

    action = models.CharField(max_length=12, choices=Action.choices)
    model = models.CharField(max_length=128, db_index=True)
    state = models.CharField(
        max_length=12,
        choices=DeploymentState.choices,
        default=DeploymentState.QUEUED,
        db_index=True,
    )
    trigger = models.CharField(max_length=12, choices=Trigger.choices, default=Trigger.PERSON)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    reason = models.CharField(max_length=255, blank=True)
    versions = models.JSONField(null=True)
    """Load: exactly these, or null for the version policy. Unload: the one version, or null."""
    worker_ids = models.JSONField(null=True)
    """Null: every worker."""
    unload_dependents = models.BooleanField(default=False)
    revision = models.ForeignKey(
        "repository.ConfigRevision", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    previous_revision = models.ForeignKey(
        "repository.ConfigRevision", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    desired = models.JSONField(default=list)
    """Rows of the model in the desired state after this, as `desired.snapshot` writes them."""
    previous_desired = models.JSONField(default=list)
    previous_versions = models.JSONField(default=list)
    """What workers served of the model before this."""
    upload = models.ForeignKey(
        "repository.Upload", null=True, on_delete=models.SET_NULL, related_name="deployments"
    )
    retry_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    rollback_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    error = models.TextField(blank=True)
    traceback = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.action} {self.model} ({self.state})"

    def get_absolute_url(self) -> str:
        return reverse("deployments:detail", args=[self.pk])

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def has_failed(self) -> bool:
        return self.state in (DeploymentState.FAILED, DeploymentState.ERRORED)

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def who(self) -> str:
        return self.actor.get_username() if self.actor else "system"

    @property
    def what(self) -> str:
        """The change in words: `Load version 3`, `Unload`, `Roll back to version 1`."""
        label = Action(self.action).label
        if not self.versions:
            return label
        listed = ", ".join(str(version) for version in self.versions)
        to = " to" if self.action == Action.ROLLBACK else ""
        return f"{label}{to} version {listed}"


class DeploymentTarget(models.Model):
    """One operation that one worker was asked for."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="targets")
    worker_id = models.CharField(max_length=255)
    operation_id = models.CharField(max_length=64, unique=True)
    action = models.CharField(max_length=12, choices=Action.choices)
    versions = models.JSONField(null=True)
    state = models.CharField(
        max_length=12, choices=TargetState.choices, default=TargetState.SENT, db_index=True
    )
    error = models.TextField(blank=True)
    ready_versions = models.JSONField(default=list)
    sent_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["worker_id", "id"]

    def __str__(self) -> str:
        return f"{self.action} on {self.worker_id} ({self.state})"

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.sent_at if self.finished_at else None


class DesiredModel(models.Model):
    """Whether a model should be served, and where; a row for one worker wins over that for all."""

    model = models.CharField(max_length=128)
    worker_id = models.CharField(max_length=255, blank=True)
    """Empty: every worker."""
    state = models.CharField(max_length=12, choices=WantedState.choices)
    versions = models.JSONField(null=True)
    """Exactly these, or null for the version policy."""
    revision = models.ForeignKey(
        "repository.ConfigRevision", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    deployment = models.ForeignKey(
        Deployment, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    # Set by services, never on save: following an operation must not make a wish look newer.
    updated_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()

    class Meta:
        ordering = ["model", "worker_id"]
        constraints = [
            models.UniqueConstraint(fields=["model", "worker_id"], name="one_wish_per_model_worker")
        ]

    def __str__(self) -> str:
        return f"{self.model} on {self.worker_id or 'every worker'}: {self.state}"


class Lease(models.Model):
    """Single flight across processes: who may do a recurring job, and until when."""

    name = models.CharField(max_length=64, primary_key=True)
    holder = models.CharField(max_length=64)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} by {self.holder}"
