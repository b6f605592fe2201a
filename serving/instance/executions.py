"""The batches that an instance process has been given: one burst, and one batch behind it.

A process answers bursts as wholes, in the order in which they came. Loop thread only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.instance import wire
from serving.instance.base import Batch
from serving.instance.burst import BurstLimit
from serving.request import InferenceRequest

Done = Callable[[Batch], None]


@dataclass(slots=True, eq=False)
class Burst:
    """Batches that are executed one after the other and answered together."""

    first: int
    """Number of the first batch; the others count on from there."""
    batches: Sequence[Batch]
    done: Done
    """Called for each."""

    @property
    def requests(self) -> list[InferenceRequest]:
        return [request for batch in self.batches for request in batch.requests]

    def stamp_failed(self) -> None:
        """It ends now, whatever came of it."""
        for batch in self.batches:
            batch.times.compute_end_ns = time.monotonic_ns()
            batch.stamp_requests()


class Executions:
    def __init__(self) -> None:
        self.limit = BurstLimit()
        self.bursts: deque[Burst] = deque()
        """The first is executed, the second waits behind it."""
        self._next = 0
        self._ended_ns = 0
        """When the last execution was over, by the process's clock, which is ours too."""

    def begin(self, batches: Sequence[Batch], done: Done) -> Burst:
        burst = Burst(self._next, batches, done)
        self._next += len(batches)
        now_ns = time.monotonic_ns()
        for batch in batches:
            batch.times.compute_start_ns = now_ns
        self.bursts.append(burst)
        return burst

    @property
    def running(self) -> set[InferenceRequest]:
        """The requests of the burst that is executed."""
        return set(self.bursts[0].requests) if self.bursts else set()

    def stamp(self, ended: Sequence[wire.BatchDone]) -> Burst | None:
        """The burst that this ends, its batches with the times at which they were executed.

        The way there belongs to the first batch, the way back to the last. A burst that was there
        ahead of time began when the one before it was over. Raises: WireError.
        """
        if not ended or not self.bursts:
            return None  # with no burst: it has failed meanwhile
        burst = self.bursts[0]
        if ended[0].batch != burst.first or len(ended) != len(burst.batches):
            raise wire.WireError(f"the end of {len(ended)} batches from {ended[0].batch} on")
        first, last = ended[0], ended[-1]
        for batch, done in zip(burst.batches, ended, strict=True):
            self.limit.record(done.end_ns - done.start_ns)
            times = batch.times
            if done is not first:
                times.compute_start_ns = done.start_ns
            elif times.compute_start_ns < self._ended_ns:
                times.compute_start_ns = self._ended_ns
            times.input_end_ns = done.input_end_ns
            times.output_start_ns = done.output_start_ns
            times.compute_end_ns = time.monotonic_ns() if done is last else done.end_ns
            batch.stamp_requests()
        self._ended_ns = last.end_ns
        return burst

    @property
    def waiting(self) -> list[Burst]:
        """What has not begun."""
        return list(self.bursts)[1:]

    def has_waiting(self, request: InferenceRequest) -> bool:
        return any(request in burst.requests for burst in self.waiting)
