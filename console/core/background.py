"""Starts background tasks after the transaction that they belong to.

A broker that is away must not turn a saved change into an error page: the task is logged as not
sent, and the sweeps on beat (`sweep_uploads`, `reconcile`) pick the row up when Redis is back.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from kombu.exceptions import OperationalError

from console.core.workers import get_client

logger = logging.getLogger(__name__)


def start_on_commit(task: Any, *arguments: Any) -> None:
    """Send `task` to its queue once the current transaction is committed."""
    transaction.on_commit(lambda: send(task, *arguments))


def send(task: Any, *arguments: Any) -> bool:
    """Send `task` now; False when the broker cannot be reached."""
    if get_client().is_hanging:
        logger.warning("task not sent, Redis hangs, a sweep will: task=%s", task.name)
        return False
    try:
        task.apply_async(args=arguments, retry=False)
    except (OperationalError, OSError) as error:
        logger.warning("task not sent, a sweep will: task=%s error=%s", task.name, error)
        return False
    return True
