"""REST routes under /api/v1/."""

from __future__ import annotations

from django.urls import path

from console.catalog import api

urlpatterns = [
    path("models", api.ModelsView.as_view(), name="api-models"),
    path("models/<str:name>", api.ModelView.as_view(), name="api-model"),
    path("models/<str:name>/check-config", api.CheckConfigView.as_view(), name="api-check-config"),
    path("models/<str:name>/explain", api.ExplainView.as_view(), name="api-explain"),
]
