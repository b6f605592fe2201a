"""REST routes of monitoring, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from console.monitoring.api import SeriesView

urlpatterns = [path("metrics/series", SeriesView.as_view(), name="api-metrics-series")]
