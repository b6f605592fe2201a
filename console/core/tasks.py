"""The core's background half: what grows with time and nobody deletes by hand."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from console.core.models import AuditEntry

BEAT = {"core-forget": {"task": "console.core.tasks.forget_old", "schedule": 6 * 3600.0}}


@shared_task(expires=3600)  # type: ignore[untyped-decorator]
def forget_old() -> None:
    """Ended sessions, and audit entries older than CONCH_AUDIT_DAYS (0: kept for good)."""
    call_command("clearsessions")
    if settings.CONCH_AUDIT_DAYS:
        before = timezone.now() - timedelta(days=settings.CONCH_AUDIT_DAYS)
        AuditEntry.objects.filter(at__lt=before).delete()
