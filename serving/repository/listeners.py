"""Onlookers of versions that change their state. Loop thread."""

from __future__ import annotations

import logging
from collections.abc import Callable

from serving.repository.states import IndexEntry

logger = logging.getLogger(__name__)


class StateListeners:
    def __init__(self) -> None:
        self._callbacks: list[Callable[[IndexEntry], None]] = []

    def add(self, callback: Callable[[IndexEntry], None]) -> None:
        self._callbacks.append(callback)

    def tell(self, entry: IndexEntry) -> None:
        for callback in self._callbacks:
            try:
                callback(entry)
            except Exception:
                # An onlooker: whatever is wrong with it, the load goes on.
                logger.exception("a state listener failed model=%s", entry.name)
