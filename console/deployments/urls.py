"""Pages below /deployments/."""

from __future__ import annotations

from django.urls import path

from console.deployments import pages

app_name = "deployments"

urlpatterns = [
    path("", pages.history, name="list"),
    path("<int:deployment_id>/", pages.detail, name="detail"),
    path("<int:deployment_id>/rollback/", pages.rollback, name="rollback"),
    path("<int:deployment_id>/retry/", pages.retry, name="retry"),
]
