"""Pages under /models/."""

from __future__ import annotations

from django.urls import path

from console.catalog import config_pages, try_pages, version_pages, views

app_name = "catalog"

urlpatterns = [
    path("", views.models, name="models"),
    path("<str:name>/", views.model, name="model"),
    path("<str:name>/header/", version_pages.live_parts, name="header"),
    path("<str:name>/load/", views.load, name="load"),
    path("<str:name>/unload/", views.unload, name="unload"),
    path("<str:name>/versions/", version_pages.versions, name="versions"),
    path("<str:name>/versions/policy/", version_pages.change_policy, name="policy"),
    path(
        "<str:name>/versions/<int:version>/load/", version_pages.load_version, name="load_version"
    ),
    path(
        "<str:name>/versions/<int:version>/unload/",
        version_pages.unload_version,
        name="unload_version",
    ),
    path(
        "<str:name>/versions/<int:version>/delete/",
        version_pages.delete_version,
        name="delete_version",
    ),
    path("<str:name>/config/", config_pages.config, name="config"),
    path("<str:name>/config/check/", config_pages.check, name="config_check"),
    path("<str:name>/config/effective/", config_pages.download, name="config_effective"),
    path("<str:name>/config/revisions/<int:number>/", config_pages.revision, name="revision"),
    path("<str:name>/statistics/", views.model_statistics, name="statistics"),
    path("<str:name>/try/", try_pages.try_model, name="try"),
    path("<str:name>/try/labels/", try_pages.labels, name="labels"),
    path("<str:name>/history/", views.history, name="history"),
]
