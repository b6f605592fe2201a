"""What every page shows of the whole: the counts of the menu, the number of problems of the tab.

Kept for a few seconds in each web process, because every page asks. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.core.cache import cache

from console.catalog.observed import observe
from console.core import workers as door
from console.deployments import selectors as deployments
from console.monitoring.overview import read_overview
from console.repository import selectors as repository

KEPT_S = 3

T = TypeVar("T")


def menu_counts() -> dict[str, int]:
    """Name of the menu's entry -> how many: models, deployments that still run, workers."""
    return _kept("menu-counts", _count)


def problem_count() -> int:
    """As many as "Needs attention" of the overview has lines."""
    return _kept("problem-count", lambda: len(read_overview().problems))


def _count() -> dict[str, int]:
    infos, _ = door.known()
    names = {model.name for model in repository.models_on_disk()} | set(observe(infos))
    return {
        "models": len(names),
        "deployments": deployments.open_count(),
        "workers": len(infos),
    }


def _kept(key: str, read: Callable[[], T]) -> T:
    found: T | None = cache.get(key)
    if found is None:
        found = read()
        cache.set(key, found, KEPT_S)
    return found
