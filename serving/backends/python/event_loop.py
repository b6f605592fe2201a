"""The event loop of a model's coroutines: one for each instance, in a thread of its own (PB-006).

Tasks that a model leaves running go on between its batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any


class EventLoop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="event-loop", daemon=True)
        thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """It sees the context of the caller: on whose behalf it runs."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
