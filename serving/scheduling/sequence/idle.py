"""Sequences that nobody goes on with, and what became of those that are no more.

Callers pass the time in; every operation is O(1). Loop thread only. Source: spec SCH-058.
"""

from __future__ import annotations

from collections import OrderedDict

from serving.scheduling.sequence.record import Sequence

_REMEMBERED = 1024


class IdleWatch:
    """Open sequences without a request that waits or runs."""

    def __init__(self, limit_us: int) -> None:
        self._limit_ns = limit_us * 1000
        self._since: OrderedDict[Sequence, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<IdleWatch {len(self._since)} idle>"

    def __len__(self) -> int:
        return len(self._since)

    def add(self, sequence: Sequence, now_ns: int) -> None:
        self._since[sequence] = now_ns

    def discard(self, sequence: Sequence) -> None:
        self._since.pop(sequence, None)

    def expire(self, now_ns: int) -> list[Sequence]:
        """Take out those that have been idle for too long."""
        expired = []
        while self._since:
            sequence, since_ns = next(iter(self._since.items()))
            if now_ns < since_ns + self._limit_ns:
                break
            del self._since[sequence]
            expired.append(sequence)
        return expired

    def next_deadline_ns(self) -> int:
        """When `expire` has something to do; 0 for never."""
        return next(iter(self._since.values())) + self._limit_ns if self._since else 0


class Ended:
    """Why the latest sequences ended, to tell whoever goes on with one of them."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[int | str, tuple[int, str]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Ended {len(self._reasons)} remembered>"

    def add(self, correlation_id: int | str, now_ns: int, reason: str) -> None:
        """`reason`: goes on "sequence X ended 3.1 s ago: "."""
        self._reasons[correlation_id] = (now_ns, reason)
        self._reasons.move_to_end(correlation_id)
        if len(self._reasons) > _REMEMBERED:
            self._reasons.popitem(last=False)

    def explain(self, correlation_id: int | str, now_ns: int) -> str:
        """A sentence, or nothing where the sequence is not remembered."""
        found = self._reasons.get(correlation_id)
        if found is None:
            return ""
        since_ns, reason = found
        ago_s = (now_ns - since_ns) / 1e9
        return f"sequence {correlation_id!r} ended {ago_s:.1f} s ago: {reason}"
