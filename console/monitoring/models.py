"""Telemetry that outlives the stream: one row a worker and minute."""

from __future__ import annotations

from django.db import models


class MinuteSample(models.Model):
    worker_id = models.CharField(max_length=120)
    minute = models.DateTimeField(db_index=True)
    # A `workers.messages.Sample` over the minute, as its JSON.
    sample = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["worker_id", "minute"], name="one_sample_a_minute")
        ]

    def __str__(self) -> str:
        return f"{self.worker_id} {self.minute:%Y-%m-%d %H:%M}"
