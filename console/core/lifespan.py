"""What the web process does at its start and its end, as ASGI's lifespan protocol tells it.

Parts that hold connections (gateway, relay) register a closer; all closers run at shutdown on the
event loop, and one that fails does not keep the others from running.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

logger = logging.getLogger(__name__)

_closers: list[Callable[[], Awaitable[None]]] = []


def at_shutdown(closer: Callable[[], Awaitable[None]]) -> None:
    _closers.append(closer)


async def answer_lifespan(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await close_all()
            await send({"type": "lifespan.shutdown.complete"})
            return


async def close_all() -> None:
    for closer in _closers:
        try:
            await closer()
        except Exception:
            logger.exception("closing a part of the web process failed")
