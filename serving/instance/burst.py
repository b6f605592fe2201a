"""How many batches cross to an instance at once, and whether the next may cross before it is due.

Where crossing costs more than the run, several go together; where it costs a noticeable part of it,
the next one waits at the instance, which then does not sleep in between. The average is written by
whichever thread runs the batches, and read on the loop.
"""

from __future__ import annotations

BURST_NS = 200_000
"""How long a burst may hold up its first answer."""
MAX_BATCHES = 32
AHEAD_NS = 10_000_000
"""Behind a longer run nothing waits at the instance: a moment between two costs little there, and
what is cancelled in the queue is not executed."""


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

    @property
    def goes_ahead(self) -> bool:
        """The next batch may wait at the instance. Bursts pay for the way there already, and are
        the longer for what gathers meanwhile.
        """
        return BURST_NS // 2 < self._run_ns < AHEAD_NS
