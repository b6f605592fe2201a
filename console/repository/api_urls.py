"""REST routes of the repository, below /api/v1/."""

from __future__ import annotations

from django.urls import path

from console.repository import model_api as models
from console.repository import upload_api as uploads

urlpatterns = [
    path("uploads", uploads.Uploads.as_view(), name="api-uploads"),
    path("uploads/<uuid:upload_id>", uploads.UploadDetail.as_view(), name="api-upload"),
    path(
        "uploads/<uuid:upload_id>/content",
        uploads.UploadContent.as_view(),
        name="api-upload-content",
    ),
    path(
        "uploads/<uuid:upload_id>/complete",
        uploads.UploadComplete.as_view(),
        name="api-upload-complete",
    ),
    path(
        "uploads/<uuid:upload_id>/config", uploads.UploadConfig.as_view(), name="api-upload-config"
    ),
    path(
        "uploads/<uuid:upload_id>/publish",
        uploads.UploadPublished.as_view(),
        name="api-upload-publish",
    ),
    path("models/<str:model>/files", models.Files.as_view(), name="api-model-files"),
    path("models/<str:model>/files/<path:path>", models.File.as_view(), name="api-model-file"),
    path("models/<str:model>/config", models.Config.as_view(), name="api-model-config"),
    path("models/<str:model>/policy", models.Policy.as_view(), name="api-model-policy"),
    path("models/<str:model>/revisions", models.Revisions.as_view(), name="api-model-revisions"),
    path(
        "models/<str:model>/revisions/<int:number>",
        models.Revision.as_view(),
        name="api-model-revision",
    ),
    path(
        "models/<str:model>/versions/<int:version>",
        models.Version.as_view(),
        name="api-model-version",
    ),
]
