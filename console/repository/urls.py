"""Pages below /repository/. The upload's own come first: everything else is a path on disk."""

from __future__ import annotations

from django.urls import path

from console.repository import pages, upload_pages

app_name = "repository"

urlpatterns = [
    path("upload/", upload_pages.upload, name="upload"),
    path("upload/<uuid:upload_id>/", upload_pages.upload_detail, name="upload_detail"),
    path("upload/<uuid:upload_id>/config/", upload_pages.upload_config, name="upload_config"),
    path("upload/<uuid:upload_id>/check/", upload_pages.upload_check, name="upload_check"),
    path("upload/<uuid:upload_id>/wish/", upload_pages.upload_wish, name="upload_wish"),
    path("upload/<uuid:upload_id>/publish/", upload_pages.upload_publish, name="upload_publish"),
    path("upload/<uuid:upload_id>/discard/", upload_pages.upload_discard, name="upload_discard"),
    path("-/delete/<str:model>/<int:version>/", pages.delete_version, name="delete_version"),
    path("-/delete/<str:model>/", pages.delete_model, name="delete_model"),
    path("-/restore/<int:entry_id>/", pages.restore, name="restore"),
    path("", pages.browse, name="browse"),
    path("<path:path>", pages.browse, name="browse"),
]
