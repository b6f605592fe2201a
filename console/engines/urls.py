"""Pages below /engines/."""

from __future__ import annotations

from django.urls import path

from console.engines import pages

app_name = "engines"

urlpatterns = [
    path("", pages.history, name="list"),
    path("new/<str:model>/", pages.new, name="new"),
    path("<int:pk>/", pages.detail, name="detail"),
    path("<int:pk>/cancel/", pages.cancel, name="cancel"),
    path("<int:pk>/retry/", pages.retry, name="retry"),
]
