"""Gives shared segments back to their owner, and to the machine when they lie idle.

The news mostly travel with requests and answers; this is for when none follows. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from serving.instance import wire
from serving.instance.shared_tensors import PeerSegments, SegmentPool

TEND_S = 1.0
"""How soon a segment that nobody views goes back, where no message takes the news along."""
TRIM_AFTER = 30
"""After so many looks without a big tensor, the segments that are kept for more are freed."""


class SegmentKeeper:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: SegmentPool,
        peer: PeerSegments,
        send: Callable[[wire.Segments], None],
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._peer = peer
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        """Runs while there is a segment."""
        self._idle_looks = 0

    def watch(self) -> None:
        """There is a new segment."""
        self._idle_looks = 0
        if self._timer is None:
            self._timer = self._loop.call_later(TEND_S, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        is_used = self._pool.is_used or self._peer.is_used
        self._pool.is_used = self._peer.is_used = False
        self._idle_looks = 0 if is_used else self._idle_looks + 1
        # Twice: what the process gives back when it is told so is idle by the second time.
        must_trim = self._idle_looks >= TRIM_AFTER - 1
        if must_trim:
            self._pool.trim()
        if self._idle_looks >= TRIM_AFTER:
            self._idle_looks = 0
        released = self._peer.take_released()
        forgotten, self._pool.forgotten = self._pool.forgotten, []
        if released or forgotten or must_trim:
            self._send(wire.Segments(released, forgotten, must_trim))
        if not (self._pool.is_empty and self._peer.is_empty):
            self._timer = self._loop.call_later(TEND_S, self._look)
