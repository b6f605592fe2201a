"""Waiting for a state with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PAUSE_S = 0.005


async def wait_until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Let the loop run until `condition()` is true. Raises AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout_s} s: {condition}"
        await asyncio.sleep(_PAUSE_S)


def wait_until_blocking(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """The same for tests without a loop."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout_s} s: {condition}"
        time.sleep(_PAUSE_S)
