"""Pages under /live/."""

from __future__ import annotations

from django.urls import path

from console.monitoring import views

app_name = "monitoring"

urlpatterns = [
    path("", views.live, name="live"),
    path("glance/", views.glance_at_all, name="glance"),
]
