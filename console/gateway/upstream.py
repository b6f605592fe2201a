"""A small HTTP/1.1 client towards the workers: kept connections, bodies streamed both ways.

One pool a web process, on its event loop. Neither request nor response body is held whole. A kept
connection that the worker closed meanwhile is found out by an empty answer and tried again on a new
one, as long as nothing but the first piece of the body was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httptools

from console.gateway.workers import Upstream

CONNECT_S = 3.0
KEPT_A_WORKER = 64
PIECE = 256 * 1024


class UpstreamError(Exception):
    """The worker did not answer as HTTP asks for; `is_unsent` if it never got the request."""

    def __init__(self, message: str, *, is_unsent: bool = False) -> None:
        super().__init__(message)
        self.is_unsent = is_unsent


@dataclass(slots=True)
class Head:
    status: int
    headers: list[tuple[bytes, bytes]]

    @property
    def keeps_connection(self) -> bool:
        words = [value.lower() for name, value in self.headers if name == b"connection"]
        return b"close" not in words


@dataclass(slots=True)
class _Answer:
    """What httptools found in the bytes so far."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    has_head: bool = False
    is_complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_complete = True


class Connection:
    """One connection; one request at a time."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.is_reused = False
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        up = self.upstream
        try:
            self._reader, self._writer = await asyncio.wait_for(
                asyncio.open_connection(up.host, up.port, limit=4 * PIECE), CONNECT_S
            )
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            text = f"Worker '{up.worker_id}' cannot be reached: {reason}"
            raise UpstreamError(text, is_unsent=True) from error

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise UpstreamError(self._gone()) from error

    async def answer(self) -> tuple[Head, AsyncIterator[bytes]]:
        """The head as soon as it is there, and the body as it comes."""
        found = _Answer()
        parser = httptools.HttpResponseParser(found)
        got_any = False
        while not found.has_head:
            data = await self._read()
            if not data:
                raise UpstreamError(self._gone(), is_unsent=self.is_reused and not got_any)
            got_any = True
            self._feed(parser, data)
        head = Head(parser.get_status_code(), found.headers)
        return head, self._body(parser, found)

    async def _body(
        self, parser: httptools.HttpResponseParser, found: _Answer
    ) -> AsyncIterator[bytes]:
        while True:
            pieces, found.pieces = found.pieces, []
            for piece in pieces:
                yield piece
            if found.is_complete:
                return
            data = await self._read()
            if not data:
                raise UpstreamError(self._gone())
            self._feed(parser, data)

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(PIECE)
        except OSError as error:
            raise UpstreamError(self._gone()) from error

    def _feed(self, parser: httptools.HttpResponseParser, data: bytes) -> None:
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            text = f"Worker '{self.upstream.worker_id}' sent something that is not HTTP"
            raise UpstreamError(text) from error

    def _gone(self) -> str:
        return f"Worker '{self.upstream.worker_id}' closed the connection before it answered"


class Pool:
    def __init__(self) -> None:
        self._idle: dict[Upstream, list[Connection]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self, upstream: Upstream, *, fresh: bool = False) -> Connection:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle.clear()
            self._loop = loop
        idle = self._idle.get(upstream, [])
        while idle and not fresh:
            connection = idle.pop()
            if not connection.is_closed:
                connection.is_reused = True
                return connection
        connection = Connection(upstream)
        await connection.open()
        return connection

    def give_back(self, connection: Connection) -> None:
        """Only after the whole answer was read and the worker keeps the connection."""
        idle = self._idle.setdefault(connection.upstream, [])
        if connection.is_closed or len(idle) >= KEPT_A_WORKER:
            connection.abort()
        else:
            idle.append(connection)

    async def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()
