"""REST routes of the fleet, below /api/v1/."""

from __future__ import annotations

from django.urls import path

from console.fleet import api

urlpatterns = [path("backends", api.Backends.as_view(), name="api-backends")]
