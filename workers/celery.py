"""Where `celery -A workers` looks for its application."""

from __future__ import annotations

from workers.app import app

__all__ = ["app"]
