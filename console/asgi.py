"""The ASGI callable of the web process: gateway, pages, sockets.

`/v2` and `/v1` are taken before Channels and Django: a tensor's bytes meet no middleware.
Everything else is Channels' router. Runs on uvicorn's event-loop thread.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from channels.routing import ProtocolTypeRouter  # noqa: E402

from console.core.lifespan import answer_lifespan  # noqa: E402
from console.gateway.app import gateway  # noqa: E402
from console.routing import websocket_application  # noqa: E402

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_router = ProtocolTypeRouter({"http": django_application, "websocket": websocket_application})


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    kind = scope["type"]
    if kind == "http":
        path = scope["path"]
        if path.startswith(("/v2", "/v1")) and (len(path) == 3 or path[3] == "/"):
            await gateway(scope, receive, send)
            return
    elif kind == "lifespan":
        await answer_lifespan(receive, send)
        return
    await _router(scope, receive, send)
