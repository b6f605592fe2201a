"""The console's one door to the workers: a `WorkerClient` per process.

Tests put a fake in its place with `use_client`. Reads that only decorate a page go through `known`,
which answers an empty fleet and a reason while Redis is away, so that pages still render.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from django.conf import settings

from workers.messages import WorkerInfo

if TYPE_CHECKING:
    from workers.client import WorkerClient

logger = logging.getLogger(__name__)

_replacement: WorkerClient | None = None
_trouble = ""


def get_client() -> WorkerClient:
    return _replacement if _replacement is not None else _shared_client()


def use_client(client: WorkerClient | None) -> None:
    """Puts a client in the place of the shared one; None gives that one back."""
    global _replacement, _trouble
    _replacement, _trouble = client, ""


@lru_cache(maxsize=1)
def _shared_client() -> WorkerClient:
    from workers.client import WorkerClient

    return WorkerClient(settings.REDIS_URL)


def known() -> tuple[list[WorkerInfo], str]:
    """The workers as their registry knows them, and why it could not be read (or "")."""
    global _trouble
    try:
        workers, _trouble = get_client().workers(), ""
    except Exception as error:
        if not _trouble:
            logger.warning("the worker registry cannot be read: %s", error)
        workers, _trouble = [], f"The worker registry (Redis) cannot be read: {error}"
    return workers, _trouble


def trouble() -> str:
    """Why the registry could not be read the last time; empty if it could. For every page."""
    return _trouble


def served_versions(model: str) -> list[str]:
    """Versions that some connected worker serves, as its last heartbeat said."""
    return sorted(
        {
            row.version
            for worker in known()[0]
            if not worker.is_gone
            for row in worker.models
            if row.name == model and row.state == "READY"
        }
    )
