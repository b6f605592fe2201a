"""What of a model serves, and what a load of its files as they are now has to do.

Decisions on stamps and configs; no file is read here. Loop thread. Source: spec REP-044, REP-056,
REP-090.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from serving.repository.source import Loader, PreparedModel, Source


@dataclass(frozen=True, slots=True)
class Served:
    prepared: PreparedModel
    selected: tuple[int, ...]
    """The versions of the last successful load."""

    @property
    def source(self) -> Source:
        return self.prepared.source


@dataclass(frozen=True, slots=True)
class LoadPlan:
    fresh: list[int]
    """To be loaded."""
    update: list[int]
    """Serving already, only their instances are to be changed. All others stay as they are."""


def is_current(served: Served | None, source: Source, sound: Collection[int]) -> bool:
    """Nothing to do: the same request, the same files, and all of it serves and is well."""
    return (
        served is not None
        and _is_plain(served, source)
        and served.source.request.versions == source.request.versions
        and served.source.stamp == source.stamp
        and tuple(sound) == served.selected
    )


def plan(
    served: Served | None,
    prepared: PreparedModel,
    selected: Iterable[int],
    sound: Collection[int],
    loader: Loader[Any],
) -> LoadPlan:
    wanted = LoadPlan([], [])
    for version in selected:
        if served is None or version not in sound or _has_agents(served.prepared, prepared):
            wanted.fresh.append(version)
        elif _is_unchanged(served, prepared.source, version):
            continue
        elif loader.may_update(served.prepared, prepared, version):
            wanted.update.append(version)
        else:
            wanted.fresh.append(version)
    return wanted


def _has_agents(*prepared: PreparedModel) -> bool:
    """Agents see a model come and go as a whole, and may have moved its files."""
    return any(item.agents is not None for item in prepared)


def _is_unchanged(served: Served, source: Source, version: int) -> bool:
    return _is_plain(served, source) and served.source.stamp.is_same_version(source.stamp, version)


def _is_plain(served: Served, source: Source) -> bool:
    return not (source.request.is_forced or served.source.request.is_forced)
