"""How many batches cross to an instance at once, where crossing costs more than the run.

The average is written by whichever thread runs the batches, and read on the loop.
"""

from __future__ import annotations

import time

from serving.instance import wire
from serving.instance.base import Batch

BURST_NS = 200_000
"""How long a burst may hold up its first answer."""
MAX_BATCHES = 32


class BurstLimit:
    def __init__(self) -> None:
        self._run_ns = 0
        """Moving average of an execution; 0 before the first."""

    def record(self, run_ns: int) -> None:
        self._run_ns = (3 * self._run_ns + run_ns) // 4 if self._run_ns else run_ns

    @property
    def batches(self) -> int:
        """1 until it is known how fast the model is."""
        if not self._run_ns:
            return 1
        return max(1, min(MAX_BATCHES, BURST_NS // self._run_ns))


def stamp(batch: Batch, done: wire.BatchDone, *, is_first: bool, is_last: bool) -> None:
    """The times of a batch that a process has executed, alone or in a burst.

    The way there belongs to the first of a burst, the way back to the last.
    """
    times = batch.times
    if not is_first:
        times.compute_start_ns = done.start_ns
    times.input_end_ns = done.input_end_ns
    times.output_start_ns = done.output_start_ns
    times.compute_end_ns = time.monotonic_ns() if is_last else done.end_ns
    batch.stamp_requests()
