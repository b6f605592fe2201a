"""REST routes of deployments and of the schema, below /api/v1/."""

from __future__ import annotations

from django.urls import path

from console.deployments import api

urlpatterns = [
    path("models/<str:model>/load", api.Load.as_view(), name="api-load"),
    path("models/<str:model>/unload", api.Unload.as_view(), name="api-unload"),
    path("deployments", api.Deployments.as_view(), name="api-deployments"),
    path("deployments/<int:deployment_id>", api.DeploymentDetail.as_view(), name="api-deployment"),
    path("deployments/<int:deployment_id>/rollback", api.Rollback.as_view(), name="api-rollback"),
    path("deployments/<int:deployment_id>/retry", api.Retry.as_view(), name="api-retry"),
    path("desired", api.Desired.as_view(), name="api-desired"),
    path("workers", api.Workers.as_view(), name="api-workers"),
    path("workers/<str:worker_id>", api.Worker.as_view(), name="api-worker"),
    path("schema", api.Schema.as_view(), name="api-schema"),
    path("docs/", api.SwaggerPage.as_view(), name="api-docs"),
]
