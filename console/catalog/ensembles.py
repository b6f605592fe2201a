"""Which models of the repository are ensembles, and who needs whom: read from the files on disk.

Nothing here writes. A config is parsed again only after its file has changed. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from console.deployments import selectors as deployments
from console.repository import selectors as repository
from serving.config import pbtxt
from serving.errors import InvalidArgumentError
from serving.repository.dependencies import DependencyGraph, parts_of
from serving.repository.layout import ModelDirectory

_MARK = "ensemble_scheduling"
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Family:
    """A model among those that it calls and those that call it."""

    parts: list[str] = field(default_factory=list)
    """Models that it is made of; empty unless it is an ensemble."""
    users: list[str] = field(default_factory=list)
    """Ensembles that call it."""
    fall_with_it: list[str] = field(default_factory=list)
    """Ensembles that stop serving without it, those over other ensembles too."""
    only_it_uses: list[str] = field(default_factory=list)
    """Parts that an unload may take along: nobody asked for them, no other ensemble uses them."""

    @property
    def is_ensemble(self) -> bool:
        return bool(self.parts)


def family_of(name: str) -> Family:
    graph = _graph(repository.models_on_disk())
    leaving = graph.unload_order(name, with_parts=True, asked_for=deployments.wanted_models())
    return Family(
        parts=sorted(graph.parts(name)),
        users=sorted(graph.users(name)),
        fall_with_it=sorted(graph.all_users(name)),
        only_it_uses=sorted(leaving[1:]),
    )


def _graph(directories: Iterable[ModelDirectory]) -> DependencyGraph:
    graph = DependencyGraph()
    for directory in directories:
        parts = _parts_on_disk(directory)
        try:
            graph.put(directory.name, parts)
        except InvalidArgumentError:
            # It needs itself, and no worker serves it: the Config tab says so.
            continue
    return graph


def _parts_on_disk(directory: ModelDirectory) -> frozenset[str]:
    if directory.config_path is None:
        return frozenset()
    try:
        stat = directory.config_path.stat()
    except OSError:
        return frozenset()
    return _read_parts(directory.config_path, stat.st_mtime_ns, stat.st_size)


@lru_cache(_KEPT)
def _read_parts(path: Path, changed_ns: int, size: int) -> frozenset[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    # Most models are no ensembles, and parsing costs.
    config = pbtxt.parse(text).config if _MARK in text else None
    return parts_of(config) if config is not None else frozenset()
