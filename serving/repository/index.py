"""Rows of the repository index: what lies on disk joined with what the lifecycle knows.

Pure. Loop thread. Source: spec REP-080..086.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from serving.repository.lifecycle import Lifecycle
from serving.repository.states import DUPLICATE, UNLOADED, IndexEntry


def index_rows(
    listing: Mapping[str, Collection[object]], lifecycle: Lifecycle, *, ready_only: bool = False
) -> list[IndexEntry]:
    """`listing`: model name -> its places, one for each repository that has it."""
    rows: list[IndexEntry] = []
    space = lifecycle.namespace
    for name in sorted(listing.keys() | lifecycle.names()):
        entries = [
            entry
            for entry in lifecycle.entries(name)
            if name in listing or entry.reason != UNLOADED
        ]
        if len(listing.get(name, ())) > 1:
            rows.append(IndexEntry(name, None, "UNAVAILABLE", DUPLICATE, namespace=space))
            entries = [entry for entry in entries if entry.reason != DUPLICATE]
        elif not entries and name in listing and not ready_only:
            rows.append(IndexEntry(name, namespace=space))
        rows.extend(entry for entry in entries if not ready_only or entry.state == "READY")
    return rows
