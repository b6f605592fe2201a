"""REST routes of engine builds, below /api/v1/."""

from __future__ import annotations

from django.urls import path

from console.engines import api

urlpatterns = [
    path("models/<str:model>/engines", api.Build.as_view(), name="api-engine-build"),
    path("engines", api.Builds.as_view(), name="api-engines"),
    path("engines/<int:build>", api.BuildDetail.as_view(), name="api-engine"),
    path("engines/<int:build>/cancel", api.Cancel.as_view(), name="api-engine-cancel"),
]
