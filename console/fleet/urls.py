"""Pages under /workers/."""

from __future__ import annotations

from django.urls import path

from console.fleet import views

app_name = "fleet"

urlpatterns = [
    path("", views.workers, name="workers"),
    path("<str:worker_id>/", views.worker, name="worker"),
    path("<str:worker_id>/forget/", views.forget, name="forget"),
]
