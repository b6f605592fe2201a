"""The raw ASGI callable behind `/v2`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any


async def gateway(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    body = b'{"error":"no worker is connected"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
