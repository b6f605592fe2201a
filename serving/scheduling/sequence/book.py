"""Which sequences there are, by correlation id, and what became of the latest that are no more.

An id may be used again at once after an END: the new sequence follows the old one, and begins when
that is over. Callers pass the time in. Loop thread only. Source: spec SCH-051, SCH-052.
"""

from __future__ import annotations

from serving.scheduling.sequence.idle import Ended
from serving.scheduling.sequence.record import Sequence


class Book:
    def __init__(self) -> None:
        self._open: dict[int | str, Sequence] = {}
        """Those that take requests."""
        self._ending: dict[int | str, Sequence] = {}
        """The latest with an id that takes no more requests, while one with that id is not over."""
        self._following: set[Sequence] = set()
        """Those that begin when another with their id is over."""
        self._ended = Ended()

    def __repr__(self) -> str:
        return (
            f"<Book open={len(self._open)} ending={len(self._ending)} "
            f"following={len(self._following)}>"
        )

    def __len__(self) -> int:
        """How many take requests."""
        return len(self._open)

    def __contains__(self, correlation_id: object) -> bool:
        return correlation_id in self._open

    @property
    def open_sequences(self) -> list[Sequence]:
        return list(self._open.values())

    @property
    def following(self) -> frozenset[Sequence]:
        return frozenset(self._following)

    def get(self, correlation_id: int | str) -> Sequence | None:
        return self._open.get(correlation_id)

    def begin(self, correlation_id: int | str) -> tuple[Sequence, bool]:
        """A new sequence, and whether it may have a slot now: `close` of another says it else."""
        sequence = self._open[correlation_id] = Sequence(correlation_id)
        before = self._ending.get(correlation_id)
        if before is None:
            return sequence, True
        before.successor = sequence
        self._following.add(sequence)
        return sequence, False

    def seal(self, sequence: Sequence, reason: str, now_ns: int) -> None:
        """No more requests of this sequence are taken."""
        if not sequence.end_reason:
            self._ending[sequence.id] = sequence
        sequence.end_reason = reason
        if self._open.get(sequence.id) is sequence:
            del self._open[sequence.id]
            self._ended.add(sequence.id, now_ns, reason)

    def close(self, sequence: Sequence) -> Sequence | None:
        """A sealed sequence is over. Returns the one that may have a slot now, if there is one."""
        sequence.is_over = True
        if sequence in self._following:
            self._following.discard(sequence)  # a link in the chain behind one that is not over
            return None
        last = self._ending.get(sequence.id)
        if last is not None and last.is_over:
            del self._ending[sequence.id]
        successor = sequence.next_successor()
        if successor is not None:
            self._following.discard(successor)
        return successor

    def explain(self, correlation_id: int | str, now_ns: int) -> str:
        """What became of it, as a sentence; empty where that is not remembered."""
        return self._ended.explain(correlation_id, now_ns)
