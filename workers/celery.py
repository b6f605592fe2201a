"""Where `celery -A workers` looks for its application."""

from __future__ import annotations

from workers.settings import SettingsError

try:
    from workers.app import app
except SettingsError as error:
    # Celery would show the traceback of the import around it.
    raise SystemExit(f"error: {error}") from None

__all__ = ["app"]
