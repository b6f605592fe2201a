"""Tables that only grow are cut back; odd characters reach no query."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from console.core import audit, tasks
from console.core.models import AuditEntry

pytestmark = pytest.mark.django_db


def test_ended_sessions_and_old_audit_entries_go(settings: Any) -> None:
    now = timezone.now()
    Session.objects.create(session_key="old", expire_date=now - timedelta(days=1))
    Session.objects.create(session_key="new", expire_date=now + timedelta(days=1))
    old = audit.record(None, "load model", "old")
    AuditEntry.objects.filter(pk=old.pk).update(at=now - timedelta(days=11))
    audit.record(None, "load model", "new")

    settings.CONCH_AUDIT_DAYS = 0
    tasks.forget_old()
    assert AuditEntry.objects.count() == 2

    settings.CONCH_AUDIT_DAYS = 10
    tasks.forget_old()
    assert [entry.target for entry in AuditEntry.objects.all()] == ["new"]
    assert [session.session_key for session in Session.objects.all()] == ["new"]


@pytest.mark.parametrize(
    "path",
    [
        "/settings/audit/?q=%00",
        "/models/?q=%00&state=%00",
        "/models/%00/",
        "/models/%00/history/",
        "/deployments/?q=%00&state=%00&action=%00",
        "/repository/%00/",
        "/workers/?q=%00",
        "/workers/%00/",
        "/settings/tokens/?q=%00",
        "/api/v1/models?q=%00",
        "/api/v1/models/%00/revisions",
        "/api/v1/deployments?model=%00",
        "/api/v1/metrics/series?model=%00",
        "/api/v1/workers/%00",
    ],
)
def test_a_nul_character_breaks_nothing(path: str, admin: Any, login: Any) -> None:
    assert login(admin).get(path).status_code < 500
