"""Pages that belong to no other app, the first page, and what probes and Prometheus ask."""

from __future__ import annotations

from django.urls import path

from console.core import health, views
from console.monitoring.views import home

app_name = "core"

urlpatterns = [
    path("", home, name="overview"),
    path("settings/audit/", views.audit_log, name="audit"),
    path("favicon.ico", views.favicon, name="favicon"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]
