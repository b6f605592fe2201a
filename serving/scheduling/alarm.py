"""One timer of a scheduler: rings at the earliest moment that anybody asked for. Loop thread."""

from __future__ import annotations

from collections.abc import Callable

from serving.clock import Clock, TimerHandle


class Alarm:
    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: TimerHandle | None = None
        self._when_ns = 0

    def __repr__(self) -> str:
        return f"<Alarm {self._when_ns if self._timer is not None else 'off'}>"

    def set(self, when_ns: int) -> None:
        """Ring at `when_ns`, or earlier if that is planned; 0 changes nothing."""
        if not when_ns or (self._timer is not None and self._when_ns <= when_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._when_ns = when_ns
        self._timer = self._clock.call_at(when_ns, self._on_timer)

    def clear(self) -> None:
        """What it would ring for is being done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._ring()
