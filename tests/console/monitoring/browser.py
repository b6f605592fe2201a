"""A browser's end of a WebSocket, over ASGI messages."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer

from console.monitoring.relay import GROUP


class BrowserSocket(ApplicationCommunicator):
    def __init__(self, application: Any, user: Any) -> None:
        scope = {"type": "websocket", "path": "/ws/live/", "headers": [], "user": user}
        super().__init__(application, scope)

    async def connect(self) -> bool:
        await self.send_input({"type": "websocket.connect"})
        return bool((await self.receive_output(5))["type"] == "websocket.accept")

    async def send_text(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def resume(self, last_id: str | None) -> None:
        await self.send_text(json.dumps({"resume": last_id}))

    async def joins(self) -> None:
        """Starts afresh, and waits until what comes now will reach this browser."""
        await self.resume(None)
        layer: Any = get_channel_layer()
        async with asyncio.timeout(5):
            while not layer.groups.get(GROUP):
                await asyncio.sleep(0)

    async def entry(self) -> Any:
        message = await self.receive_output(5)
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def close_code(self) -> int:
        message = await self.receive_output(5)
        assert message["type"] == "websocket.close", message
        return int(message["code"])

    async def leave(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(5)
