"""Where large JSON is decoded and encoded, so that the event loop goes on meanwhile.

The loop submits and gets the outcome by a callback; what runs in the threads is pure. Two threads:
the interpreter runs one of them at a time anyway, but decompression and numpy let go of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")

_THREADS = 2


class JsonThreads:
    """Started when first needed; ends with its owner."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], T], done: Callable[[asyncio.Future[T]], None]) -> None:
        """`done` gets the outcome on the loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="json")
        asyncio.get_running_loop().run_in_executor(self._pool, work).add_done_callback(done)
