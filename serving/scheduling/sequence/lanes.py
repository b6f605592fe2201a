"""Slots: which instance, and which row of its batches, a sequence owns for its life.

A lane is one instance with its slots. The lowest free row of all lanes is given first, so that
sequences spread over the instances. Loop thread only. Source: spec SCH-054, SCH-056, REP-093.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field

from serving.instance.base import InstanceHost
from serving.request import InferenceRequest
from serving.scheduling.ordering import ResponseOrder
from serving.scheduling.sequence.record import Sequence


@dataclass(slots=True, eq=False)
class Lane:
    host: InstanceHost
    rows: list[Sequence | None]
    free: list[int]
    """A heap of the empty rows."""
    ready: OrderedDict[InferenceRequest, Sequence] = field(default_factory=OrderedDict)
    """The next request of each sequence that could run now, in the order they became so."""
    order: ResponseOrder | None = None
    was_ready: bool = True
    """The instance could execute when it was last looked at."""
    count: int = 0
    """Sequences that have a row."""

    def __repr__(self) -> str:
        return f"<Lane {self.host.name} {self.count}/{len(self.rows)} ready={len(self.ready)}>"

    def place(self, sequence: Sequence) -> None:
        """Into the lowest free row."""
        sequence.lane, sequence.row = self, heapq.heappop(self.free)
        self.rows[sequence.row] = sequence
        self.count += 1

    def vacate(self, sequence: Sequence) -> None:
        self.rows[sequence.row] = None
        heapq.heappush(self.free, sequence.row)
        self.count -= 1
        sequence.lane = None


def make_lane(host: InstanceHost, slot_count: int, *, preserve_ordering: bool = False) -> Lane:
    order = ResponseOrder() if preserve_ordering else None
    return Lane(host, [None] * slot_count, list(range(slot_count)), order=order)
