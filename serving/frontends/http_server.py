"""Our HTTP/1.1 server: a listening socket for any `Routes`.

Everything runs on the loop thread that created it; `http_connection` has what happens on a
connection.
"""

from __future__ import annotations

import asyncio
import socket

from serving.frontends.http_connection import HttpConnection
from serving.frontends.http_heads import KnownHeads
from serving.frontends.http_limits import HttpLimits
from serving.frontends.http_messages import Routes
from serving.frontends.listening import listen

_READ_BUFFER_SIZE = 256 * 1024


class HttpServer:
    """A listening socket and its connections."""

    def __init__(self, routes: Routes, limits: HttpLimits | None = None) -> None:
        self.routes = routes
        self.limits = limits or HttpLimits()
        memory = bytearray(_READ_BUFFER_SIZE)
        self.read_buffer = memoryview(memory)
        self.heads = KnownHeads(memory)
        self.connections: set[HttpConnection] = set()
        self.closing = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._is_idle = asyncio.Event()
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def start(self, address: str, port: int, *, reuse_port: bool = False) -> None:
        """Listen; with `reuse_port` beside other processes that do so, which share the connections.

        Raises OSError naming an address that is taken or none of this machine.
        """
        self._server = await listen(
            lambda: HttpConnection(self), address, port, reuse_port=reuse_port
        )
        self.port = _port_of(self._server.sockets[0])
        self._sweep()

    def _sweep(self) -> None:
        for connection in list(self.connections):
            connection.check_progress()
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self.limits.stall_timeout_s, self._sweep)

    def forget(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        if self.closing and not self.connections:
            self._is_idle.set()

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let answers in progress go out for `grace_s`, then close."""
        self.closing = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.shut_down()
        if self.connections:
            try:
                await asyncio.wait_for(self._is_idle.wait(), grace_s)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort()


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
