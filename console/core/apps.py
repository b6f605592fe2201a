"""Django's entry for the app; binds the Celery application in every process."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class CoreConfig(AppConfig):
    default_auto_field = "django.db.models.BigAutoField"
    name = "console.core"

    def ready(self) -> None:
        # shared_task must find our application in the web process too.
        import_module("console.celery")
