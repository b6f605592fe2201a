"""The audit log: who did what to what, and when. Rows are written, never changed."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class AuditEntry(models.Model):
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    # The name outlives the account.
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=60, db_index=True)
    target = models.CharField(max_length=255, blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.target}"
