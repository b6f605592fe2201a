"""Sequences that wait for a slot: first come, first served, each with all its requests.

A request's `timeout` counts here and nowhere else: when the first one of a sequence is over, the
whole sequence goes. Callers pass the time in. Loop thread only. Source: spec SCH-057, SCH-059.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable

from serving.request import InferenceRequest
from serving.scheduling.sequence.record import Sequence

_SLACK = 64


class Backlog:
    def __init__(self) -> None:
        self._sequences: OrderedDict[Sequence, int] = OrderedDict()
        """Sequence -> the end of its patience in ns, 0 for none."""
        self._deadlines: list[tuple[int, int, Sequence]] = []
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"<Backlog {len(self)} sequences, {self.request_count} requests>"

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._sequences

    @property
    def request_count(self) -> int:
        return sum(len(sequence.waiting) for sequence in self._sequences)

    def add(self, sequence: Sequence) -> None:
        self._sequences[sequence] = 0
        for request in sequence.waiting:
            self.limit(sequence, request)

    def put_back(self, sequences: Iterable[Sequence]) -> None:
        """They have lost their slots before they ran, and come before all others."""
        for sequence in reversed(list(sequences)):
            self.add(sequence)
            self._sequences.move_to_end(sequence, last=False)

    def limit(self, sequence: Sequence, request: InferenceRequest) -> None:
        """The sequence waits no longer than this request of it may."""
        if not request.timeout_us:
            return
        deadline_ns = request.times.queue_start_ns + request.timeout_us * 1000
        before = self._sequences[sequence]
        if before and before <= deadline_ns:
            return
        self._sequences[sequence] = deadline_ns
        heapq.heappush(self._deadlines, (deadline_ns, next(self._numbers), sequence))
        if len(self._deadlines) > 2 * len(self._sequences) + _SLACK:
            # Entries of those that have gone would keep their requests alive.
            self._deadlines = [item for item in self._deadlines if self._is_due(item)]
            heapq.heapify(self._deadlines)

    def discard(self, sequence: Sequence) -> None:
        self._sequences.pop(sequence, None)

    def first(self) -> Sequence:
        """The next one to get a slot. Raises StopIteration when nobody waits."""
        return next(iter(self._sequences))

    def expire(self, now_ns: int) -> list[Sequence]:
        """Take out the sequences whose time is up."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            item = heapq.heappop(self._deadlines)
            if self._is_due(item):
                del self._sequences[item[2]]
                expired.append(item[2])
        return expired

    def next_deadline_ns(self) -> int:
        """When `expire` has something to do; 0 for never."""
        while self._deadlines and not self._is_due(self._deadlines[0]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else 0

    def _is_due(self, item: tuple[int, int, Sequence]) -> bool:
        return self._sequences.get(item[2]) == item[0]
