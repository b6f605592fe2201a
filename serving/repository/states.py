"""Words of the repository index: states of a model version, reasons, and the index row.

Pure data, any thread. Source: spec REP-080..086.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass


class VersionState(enum.Enum):
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


UNLOADED = "unloaded"
"""The one UNAVAILABLE reason that is nobody's fault; strict readiness overlooks it."""


def left_running(instances: Collection[str]) -> str:
    """The reason of a version that is unloaded but for threads which nothing can end."""
    names = ", ".join(f"'{name}'" for name in instances)
    return (
        f"{UNLOADED}, but the execution of instance {names} did not finish: its thread is left "
        "running until the server is restarted"
    )


def is_unloaded(reason: str) -> bool:
    return reason.startswith(UNLOADED)


DUPLICATE = "model appears in two or more repositories"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One row of the repository index."""

    name: str
    version: int | None = None
    """None: a model that was never asked for, or failed before its versions were known."""
    state: str = ""
    """READY, LOADING, UNLOADING, UNAVAILABLE; empty: never asked for."""
    reason: str = ""
    backend: str = ""
    instances: int = 0
    namespace: str = ""
    """The repository, where --model-namespacing is on."""
    note: str = ""
    """What the change of state has done beside, for whoever hears of it: no part of the index."""
