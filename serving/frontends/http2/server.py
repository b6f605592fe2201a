"""A listening socket and its HTTP/2 connections. Loop thread."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from serving.frontends.http2.application import Application
from serving.frontends.http2.connection import Http2Connection
from serving.frontends.http2.header_blocks import BlockCache
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.settings import greeting
from serving.frontends.listening import listen

_READ_BUFFER_SIZE = 64 * 1024
"""A larger one would be copied from more: what is left of a large message is received in place."""


class Http2Server:
    def __init__(
        self,
        application: Application,
        limits: Http2Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.application = application
        self.limits = limits or Http2Limits()
        self.blocks: BlockCache[Any] = BlockCache()
        self.read_buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        self.connections: set[Http2Connection] = set()
        self.greeting = greeting(self.limits)
        self.is_stopping = False
        self.port = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._is_idle = asyncio.Event()
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def start(self, address: str, port: int, *, reuse_port: bool = False) -> None:
        """Listen. Raises OSError naming an address that is taken or none of this machine."""
        # None where there is no TLS: asyncio refuses the option then.
        handshake_s = self.limits.preface_timeout_s if self._tls is not None else None
        self._server = await listen(
            lambda: Http2Connection(self),
            address,
            port,
            reuse_port=reuse_port,
            ssl=self._tls,
            ssl_handshake_timeout=handshake_s,
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._sweep()

    def _sweep(self) -> None:
        for connection in list(self.connections):
            connection.check_progress()
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self.limits.stall_timeout_s, self._sweep)

    def forget(self, connection: Http2Connection) -> None:
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self._is_idle.set()

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let calls in progress end for `grace_s`, then close."""
        self.is_stopping = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.drain("the server stops")
        if self.connections and grace_s > 0:
            try:
                async with asyncio.timeout(grace_s):
                    await self._is_idle.wait()
            except TimeoutError:
                pass
        for connection in list(self.connections):
            connection.abort()
