"""Time as an injected dependency, so that schedulers are plain decisions and tests never sleep.

All times are monotonic nanoseconds. `call_at` belongs to the loop thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ns(self) -> int: ...

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> TimerHandle: ...


class LoopClock:
    """The clock of a running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    now_ns = staticmethod(time.monotonic_ns)

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> TimerHandle:
        delay_s = max(0, when_ns - time.monotonic_ns()) / 1e9
        return self._loop.call_later(delay_s, callback)
