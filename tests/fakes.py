"""Fakes that tests share."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """Time that moves only when a test says so; timers fire in order while it moves."""

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self._now_ns = now_ns
        self._order = itertools.count()
        self._timers: list[tuple[int, int, FakeTimer]] = []

    def now_ns(self) -> int:
        return self._now_ns

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (when_ns, next(self._order), timer))
        return timer

    def advance_us(self, microseconds: int) -> None:
        end_ns = self._now_ns + microseconds * 1000
        while self._timers and self._timers[0][0] <= end_ns:
            when_ns, _, timer = heapq.heappop(self._timers)
            self._now_ns = max(self._now_ns, when_ns)
            if timer.callback is not None:
                timer.callback()
        self._now_ns = end_ns
