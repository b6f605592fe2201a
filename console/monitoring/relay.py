"""Brings the workers' streams to the sockets of this web process.

One task a process, on the web server's event loop: it follows the streams through the worker client
and hands each entry, encoded once, to a Channels group. The last entries stay in a ring, from which
a browser that reconnects gets what it missed. Redis away: wait, try again, go on where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

import msgspec
from channels.layers import get_channel_layer

from console.core.lifespan import at_shutdown
from console.core.workers import get_client
from workers.messages import Event, Sample

logger = logging.getLogger(__name__)

GROUP = "live"
RING = 900
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0

_encoder = msgspec.json.Encoder()


class Relay:
    def __init__(self) -> None:
        self._ring: deque[tuple[str, str]] = deque(maxlen=RING)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._task is None else "done" if self._task.done() else "running"
        return f"Relay({state}, {len(self._ring)} entries kept)"

    def ensure_started(self) -> None:
        """Starts the task with the first socket; again if its loop is gone."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._run(), name="telemetry-relay")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def missed(self, last_id: str) -> list[str] | None:
        """The texts after `last_id`, or None when the ring no longer reaches back to it."""
        texts: list[str] = []
        for entry_id, text in reversed(self._ring):
            if entry_id == last_id:
                return texts[::-1]
            texts.append(text)
        return None

    async def _run(self) -> None:
        last_id = "$"
        wait = FIRST_WAIT_S
        while True:
            try:
                async for entry_id, message in get_client().follow(last_id):
                    last_id = entry_id
                    wait = FIRST_WAIT_S
                    await self._hand_on(entry_id, message)
            except Exception as error:
                logger.warning("the live relay lost the streams, again in %.1f s: %s", wait, error)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    async def _hand_on(self, entry_id: str, message: Sample | Event) -> None:
        text = encode_entry(entry_id, message)
        self._ring.append((entry_id, text))
        layer = get_channel_layer()
        # A socket whose queue is full misses the entry; its browser asks for the series again.
        await layer.group_send(GROUP, {"type": "live.entry", "text": text})


def encode_entry(entry_id: str, message: Sample | Event) -> str:
    kind = "sample" if isinstance(message, Sample) else "event"
    return _encoder.encode({"id": entry_id, "type": kind, "data": message}).decode()


relay = Relay()
at_shutdown(relay.stop)
