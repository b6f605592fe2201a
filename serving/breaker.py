"""A circuit breaker: leaves alone for a while what fails again and again.

Belongs to one thread. Several may share one all the same: at worst two of them try at once.
"""

from __future__ import annotations

from collections.abc import Callable


class CircuitBreaker:
    """Opens after `limit` failures in a row; then one call after each pause finds out how it is."""

    def __init__(
        self,
        now_ns: Callable[[], int],
        *,
        limit: int = 5,
        first_pause_s: float = 1.0,
        longest_pause_s: float = 30.0,
    ) -> None:
        self._now_ns = now_ns
        self._limit = limit
        self._failures = 0
        self._first_pause_ns = int(first_pause_s * 1e9)
        self._longest_pause_ns = int(longest_pause_s * 1e9)
        self._pause_ns = self._first_pause_ns
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
        if self._is_trying or self._now_ns() < self._retry_ns:
            return False
        self._is_trying = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._is_trying = False
        self._pause_ns = self._first_pause_ns

    def failed(self) -> None:
        """Late failures of calls that began before it opened do not make the pause longer."""
        was_open, was_trying = self.is_open, self._is_trying
        self._failures += 1
        if not self.is_open or (was_open and not was_trying):
            return
        if was_trying:
            self._pause_ns = min(2 * self._pause_ns, self._longest_pause_ns)
        self._is_trying = False
        self._retry_ns = self._now_ns() + self._pause_ns
