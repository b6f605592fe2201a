"""Django's entry for the app."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    default_auto_field = "django.db.models.BigAutoField"
    name = "console.deployments"

    def ready(self) -> None:
        from console.deployments import services
        from console.repository import deploying

        deploying.register(services)
        # The extension registers itself by being defined.
        import_module("console.deployments.openapi")
