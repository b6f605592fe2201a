"""Slots: which instance, and which row of its batches, a sequence owns for its life.

A lane is one instance with its slots. The lowest free row of all lanes is given first, so that
sequences spread over the instances. An instance that is removed keeps its lane until the sequences
there have ended. Loop thread only. Source: spec SCH-054, SCH-056, REP-093.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from serving.instance.base import InstanceHost
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest
from serving.scheduling.ordering import ResponseOrder
from serving.scheduling.sequence.record import Sequence


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """How full a sequence model is."""

    slots: int
    """Sequences that can be served at a time, over all instances."""
    active: int
    """Sequences that own a slot."""
    backlog: int
    """Sequences that wait for one."""

    @property
    def is_open(self) -> bool:
        """There is a sequence."""
        return bool(self.active or self.backlog)


@dataclass(slots=True, eq=False)
class Lane:
    host: InstanceHost
    rows: list[Sequence | None]
    free: list[int]
    """A heap of the empty rows."""
    ready: OrderedDict[InferenceRequest, Sequence] = field(default_factory=OrderedDict)
    """The next request of each sequence that can run now, in the order they became so."""
    order: ResponseOrder | None = None
    answers_due: int = 0
    """Executed requests that have not had their final response."""
    has_run: bool = False
    """The instance executed since it was last seen dead."""

    def __repr__(self) -> str:
        return f"<Lane {self.host.name} {self.count}/{len(self.rows)} ready={len(self.ready)}>"

    @property
    def count(self) -> int:
        """Slots that are taken."""
        return len(self.rows) - len(self.free)

    @property
    def sequences(self) -> list[Sequence]:
        return [sequence for sequence in self.rows if sequence is not None]

    def ready_since_ns(self, request: InferenceRequest) -> int:
        return self.ready[request].ready_since_ns


class Lanes:
    def __init__(self, pool: InstancePool, slot_count: int, *, preserve_ordering: bool) -> None:
        self._pool = pool
        self._slot_count = slot_count
        self._preserve_ordering = preserve_ordering
        self._lanes: list[Lane] = []
        self._seen = -1
        """`change_count` of the pool when the lanes were last made to agree with it."""

    def __repr__(self) -> str:
        return f"<Lanes {self._lanes}>"

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    def usage(self, backlog: int) -> SlotUsage:
        slots = self._slot_count * len(self._pool.hosts)
        return SlotUsage(slots, sum(lane.count for lane in self._lanes), backlog)

    def place(self, sequence: Sequence) -> bool:
        """Give a free slot of an instance that can execute; False when there is none."""
        self._agree()
        best = None
        for lane in self._lanes:
            can_host = lane.free and lane.host.is_ready and lane.host in self._pool.hosts
            if can_host and (best is None or lane.free[0] < best.free[0]):
                best = lane
        if best is None:
            return False
        if not best.count:
            self._pool.keep(best.host)
        sequence.lane, sequence.row = best, heapq.heappop(best.free)
        best.rows[sequence.row] = sequence
        return True

    def vacate(self, sequence: Sequence) -> None:
        """Free the slot; without effect where the sequence has none."""
        lane, sequence.lane = sequence.lane, None
        if lane is None:
            return
        lane.rows[sequence.row] = None
        heapq.heappush(lane.free, sequence.row)
        if not lane.count:
            self._pool.let_go(lane.host)
            self._agree()

    def is_gone(self, lane: Lane) -> bool:
        """Its instance does not execute any more, and never will."""
        host = lane.host
        return host.has_failed or (not host.is_ready and host not in self._pool.hosts)

    def _agree(self) -> None:
        """Lanes for all instances of the pool, and for those that are kept after their removal."""
        if self._seen == self._pool.change_count:
            return
        self._seen = self._pool.change_count
        hosts = self._pool.hosts
        known = {lane.host for lane in self._lanes}
        self._lanes = [lane for lane in self._lanes if lane.count or lane.host in hosts]
        self._lanes += [self._make(host) for host in hosts if host not in known]

    def _make(self, host: InstanceHost) -> Lane:
        order = ResponseOrder() if self._preserve_ordering else None
        count = self._slot_count
        return Lane(host, [None] * count, list(range(count)), order=order)
