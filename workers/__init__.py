"""Celery GPU workers: each hosts one serving core in its own process and is steered by tasks."""

from __future__ import annotations
