"""Pages that belong to no other app."""

from __future__ import annotations

from django.urls import path

from console.core import views

app_name = "core"

urlpatterns = [
    path("settings/audit/", views.audit_log, name="audit"),
]
