"""When a dead instance process is started again: exponential back-off, and giving up.

Plain decisions without a clock or a loop of their own. Loop thread only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    initial_delay_s: float = 0.2
    factor: float = 2.0
    max_delay_s: float = 30.0
    stable_after_s: float = 10.0
    """A process that served this long is no part of a crash loop."""
    give_up_after: int = 8
    """Quick deaths in a row."""


class RestartCounter:
    """Counts quick deaths in a row."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.quick_deaths = 0

    def next_delay_ns(self, lifetime_ns: int) -> int | None:
        """How long to wait after a death; None to give up. A failed start has lifetime 0."""
        if lifetime_ns >= self._policy.stable_after_s * 1e9:
            self.quick_deaths = 0
        self.quick_deaths += 1
        if self.quick_deaths >= self._policy.give_up_after:
            return None
        delay_s = self._policy.initial_delay_s * self._policy.factor ** (self.quick_deaths - 1)
        return int(min(delay_s, self._policy.max_delay_s) * 1e9)
