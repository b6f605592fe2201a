"""A circuit breaker: leaves alone for a while what fails again and again. Loop thread only."""

from __future__ import annotations

from serving.clock import Clock

_FIRST_PAUSE_NS = 1_000_000_000
_LONGEST_PAUSE_NS = 30_000_000_000


class CircuitBreaker:
    """Opens after `limit` failures in a row; then one call after each pause finds out how it is."""

    def __init__(self, clock: Clock, limit: int = 5) -> None:
        self._clock = clock
        self._limit = limit
        self._failures = 0
        self._pause_ns = _FIRST_PAUSE_NS
        self._retry_ns = 0
        self._is_trying = False

    def __repr__(self) -> str:
        return f"<CircuitBreaker failures={self._failures} open={self.is_open}>"

    @property
    def is_open(self) -> bool:
        """True: do not call."""
        return self._failures >= self._limit

    def allows(self) -> bool:
        """Whether to call now. Every call that is allowed ends in `succeeded` or `failed`."""
        if not self.is_open:
            return True
        if self._is_trying or self._clock.now_ns() < self._retry_ns:
            return False
        self._is_trying = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._is_trying = False
        self._pause_ns = _FIRST_PAUSE_NS

    def failed(self) -> None:
        """Late failures of calls that began before it opened do not make the pause longer."""
        was_open, was_trying = self.is_open, self._is_trying
        self._failures += 1
        if not self.is_open or (was_open and not was_trying):
            return
        if was_trying:
            self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
        self._is_trying = False
        self._retry_ns = self._clock.now_ns() + self._pause_ns
