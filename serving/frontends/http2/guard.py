"""Counts what a client may do now and then and an attacker does all the time. Loop thread.

A budget refills with time. The clock is asked only when it is used up, so that the usual frame
costs one subtraction.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.frontends.http2.frames import Code, ConnectionFaultError


class Budget:
    def __init__(self, burst: int, per_s: float, now: Callable[[], float], what: str) -> None:
        """`what` is told to a client that has used it up."""
        self._left = float(burst)
        self._burst = burst
        self._per_s = per_s
        self._now = now
        self._since = now()
        self._what = what

    def spend(self, cost: int = 1) -> None:
        """Raises ConnectionFaultError where nothing is left (ENHANCE_YOUR_CALM)."""
        if self._left < cost:
            now = self._now()
            self._left = min(self._burst, self._left + (now - self._since) * self._per_s)
            self._since = now
            if self._left < cost:
                raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, self._what)
        self._left -= cost
