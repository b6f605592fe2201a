"""One build of an engine: what was asked for, how far it is, how it ended."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.urls import reverse

from console.engines.choices import OPEN_STATES, BuildState, Library, Precision


class EngineBuild(models.Model):
    build_id = models.CharField(max_length=32, unique=True)
    """What the worker knows it by."""
    model = models.CharField(max_length=128, db_index=True)
    version = models.BigIntegerField()
    """Whose ONNX file is built."""
    target = models.CharField(max_length=128, db_index=True)
    """The model that gets the engine."""
    worker_id = models.CharField(max_length=255)
    library = models.CharField(max_length=16, blank=True, choices=Library.choices)
    precision = models.CharField(max_length=8, choices=Precision.choices, default=Precision.MODEL)
    profiles = models.JSONField(default=list)
    """[{input: [smallest, best, largest]}]."""
    workspace_bytes = models.BigIntegerField(default=0)
    capabilities = models.JSONField(default=list)
    is_version_compatible = models.BooleanField(default=False)
    state = models.CharField(
        max_length=12, choices=BuildState.choices, default=BuildState.QUEUED, db_index=True
    )
    phase = models.CharField(max_length=255, blank=True)
    fraction = models.FloatField(default=0.0)
    error = models.TextField(blank=True)
    target_version = models.BigIntegerField(null=True)
    engine_bytes = models.BigIntegerField(null=True)
    builder = models.CharField(max_length=64, blank=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    sent_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.target} from {self.model} v{self.version} ({self.state})"

    def get_absolute_url(self) -> str:
        return reverse("engines:detail", args=[self.pk])

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def has_failed(self) -> bool:
        return self.state == BuildState.FAILED

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def who(self) -> str:
        return self.actor.get_username() if self.actor else "system"

    @property
    def percent(self) -> int:
        return int(self.fraction * 100)
