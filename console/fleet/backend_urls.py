"""Pages under /backends/."""

from __future__ import annotations

from django.urls import path

from console.fleet import backend_pages

app_name = "backends"

urlpatterns = [path("", backend_pages.backends, name="list")]
