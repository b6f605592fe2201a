"""The live socket `/ws/live/`: telemetry and events, for people who may read.

Protocol: the browser sends `{"resume": "<last id>" | null}` once; the server sends what was missed
(or `{"type": "reset"}` when that is too long ago) and then every entry as
`{"id", "type": "sample" | "event", "data"}`. Codes of closing: 4400 bad message, 4401 no login,
4403 no role, 4408 too slow, 4429 too many sockets.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user_model

from console.core.roles import Role, has_role
from console.monitoring.relay import GROUP, relay

SEND_WITHIN_S = 10.0
# How long a socket may outlive its owner's role.
CHECK_EVERY_S = 60.0

_open_sockets: set[str] = set()


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    async def connect(self) -> None:
        self.checked_at = time.monotonic()
        user = self.scope["user"]
        if not user.is_authenticated:
            await self.refuse(4401)
        elif not await may_watch(user.pk):
            await self.refuse(4403)
        elif len(_open_sockets) >= settings.CONCH_LIVE_SOCKETS:
            await self.refuse(4429)
        else:
            _open_sockets.add(self.channel_name)
            await self.accept()
            if settings.CONCH_LIVE_RELAY:
                relay.ensure_started()

    async def refuse(self, code: int) -> None:
        # Accepted first: only then does the browser learn the code.
        await self.accept()
        await self.close(code)

    async def disconnect(self, code: int) -> None:
        _open_sockets.discard(self.channel_name)
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        last_id = read_resume(text_data)
        if last_id is None or self.channel_name not in _open_sockets:
            await self.close(4400)
            return
        # Joined before the ring is read: an entry may come twice, none is lost.
        await self.channel_layer.group_add(GROUP, self.channel_name)
        missed = relay.missed(last_id) if last_id else []
        if missed is None:
            missed = [json.dumps({"type": "reset"})]
        for text in missed:
            await self.send_bounded(text)

    async def live_entry(self, event: dict[str, Any]) -> None:
        """A message of the group."""
        now = time.monotonic()
        if now - self.checked_at > CHECK_EVERY_S:
            self.checked_at = now
            if not await may_watch(self.scope["user"].pk):
                await self.close(4403)
                return
        await self.send_bounded(event["text"])

    async def send_bounded(self, text: str) -> None:
        try:
            await asyncio.wait_for(self.send(text_data=text), SEND_WITHIN_S)
        except TimeoutError:
            await self.close(4408)


def read_resume(text: str | None) -> str | None:
    """The id of a resume message, "" for a fresh start, None for anything else."""
    try:
        message = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(message, dict) or "resume" not in message:
        return None
    last_id = message["resume"]
    if last_id is None:
        return ""
    return last_id if isinstance(last_id, str) and len(last_id) <= 100 else None


@database_sync_to_async  # type: ignore[untyped-decorator]
def may_watch(user_id: int) -> bool:
    user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
    return user is not None and has_role(user, Role.VIEWER)
