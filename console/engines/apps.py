"""Django's entry for the app."""

from __future__ import annotations

from django.apps import AppConfig


class EnginesConfig(AppConfig):
    default_auto_field = "django.db.models.BigAutoField"
    name = "console.engines"
