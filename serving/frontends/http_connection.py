"""One connection of our HTTP/1.1 server: an asyncio BufferedProtocol over httptools.

Loop thread. Small messages are parsed out of one read buffer that all connections of a server share
(a read is handed over before the next one starts); a head that has come before is not parsed again;
a large body is received straight into memory of its own size. Requests of one connection may
overlap; answers leave in the order of the requests, one write for all that are ready in a turn of
the loop.
Source: design of the hot path: no Task for a unary request, views from socket to session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from serving.frontends.http_body import BodyBuffer
from serving.frontends.http_exchange import Exchange
from serving.frontends.http_heads import KnownHead
from serving.frontends.http_messages import (
    HttpRequest,
    HttpResponse,
    collect_headers,
    text_error,
)

if TYPE_CHECKING:
    from serving.frontends.http_server import HttpServer

logger = logging.getLogger(__name__)

_DIRECT_BODY_ABOVE = 32 * 1024
"""Bodies larger than this, when incomplete after the first read, get memory of their own."""
_LINGER_S = 2.0
"""How long a connection that we close early may still send, so that it sees our answer."""


class _RefusedError(Exception):
    """Raised inside parser callbacks to stop parsing; carries the answer."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status)
        self.response = response


class HttpConnection(asyncio.BufferedProtocol):
    """One client connection."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._routes = server.routes
        self._limits = server.limits
        self._buffer = server.read_buffer
        self._heads = server.heads
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        self._is_parsing = False
        self._is_flush_due = False
        self._is_refused = False
        self._keeps_alive = True
        """No request so far wanted the connection to close."""
        self._is_write_paused = False
        self._is_reading = True
        self._received = 0
        self.transport: asyncio.Transport | None = None
        self._reset_message()

    def _reset_message(self) -> None:
        self._is_begun = False
        self._is_overdue = False
        self._head_text = b""
        self._target = b""
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._chunk_count = 0
        self._request: HttpRequest | None = None
        self._body = BodyBuffer()
        self._awaits_continue = False
        self._keep_alive = False
        self._is_http_10 = False

    # --- transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._server.forget(self)
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            exchange.abandon()

    def eof_received(self) -> bool:
        return False  # a client that stops sending has gone: close, and cancel what it asked for

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read only while the client takes its answers and has few requests in progress."""
        want = not self._is_write_paused and len(self._exchanges) < self._limits.max_pipelined
        if self.transport is None or want == self._is_reading or self.transport.is_closing():
            return
        self._is_reading = want
        if want:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._is_refused or not self._body.is_direct:
            return self._buffer
        return self._body.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_refused:
            return
        self._received += nbytes
        self._is_parsing = True
        try:
            if self._body.is_direct:
                self._body.advance(nbytes)
                if self._body.is_complete:
                    # The parser stands inside the body that it never saw; a new one starts clean.
                    self._parser = httptools.HttpRequestParser(self)
                    self._finish_message()
            else:
                start = 0 if self._is_begun else self._take_known(nbytes)
                if start < nbytes:
                    self._feed(self._buffer[start:nbytes])
        finally:
            self._is_parsing = False
        if self._is_flush_due or self._awaits_continue:
            self._is_flush_due = False
            self.flush()
        if self._is_write_paused or len(self._exchanges) >= self._limits.max_pipelined:
            self._adjust_reading()

    def _take_known(self, size: int) -> int:
        """Handle whole messages whose heads have been parsed before. Returns where they end."""
        start = 0
        while start < size and self._keeps_alive:
            text, head = self._heads.find(start, size)
            self._head_text = text if head is None else b""
            body = start + len(text)
            if head is None or body + head.body_size > size:
                break
            start = body + head.body_size
            request = HttpRequest(
                head.method,
                head.target,
                head.headers,
                memoryview(bytes(self._buffer[body:start])),
                head.raw_headers,
            )
            self._handle(request, Exchange(self, head.method == b"HEAD", not self._server.closing))
        return start

    def _feed(self, data: memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_refused = True  # whatever follows is not HTTP; the answer closes
            if self._exchanges:
                self._exchanges[-1].keep_alive = False
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, _RefusedError):
                logger.exception("HTTP request failed outside its route", exc_info=cause)
                cause = _RefusedError(text_error(500, "internal error while reading the request"))
            self._refuse(cause.response)
        except httptools.HttpParserError as error:
            self._refuse(text_error(400, f"malformed HTTP request: {error}"))
        else:
            if self._request is None:
                self._head_size += len(data) if self._target else 0
                if self._head_size > 2 * self._limits.max_head_size:
                    self._refuse(text_error(431, "the request's headers are too large"))
            elif self._body.missing > _DIRECT_BODY_ABOVE:
                self._body.go_direct()

    # --- parser callbacks ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_begun = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._raw_headers.append((name, value))
        self._count_head(len(name) + len(value) + 4)
        if len(self._raw_headers) > self._limits.max_header_count:
            raise _RefusedError(
                text_error(431, f"more than {self._limits.max_header_count} request headers")
            )

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._limits.max_head_size:
            raise _RefusedError(
                text_error(431, f"the request's head exceeds {self._limits.max_head_size} bytes")
            )

    def on_headers_complete(self) -> None:
        headers = collect_headers(self._raw_headers)
        request = HttpRequest(
            self._parser.get_method(), self._target, headers, raw_headers=self._raw_headers
        )
        self._request = request
        self._keep_alive = self._parser.should_keep_alive()
        self._keeps_alive = self._keeps_alive and self._keep_alive
        self._is_http_10 = self._parser.get_http_version() == "1.0"
        length = headers.get(b"content-length")
        size = int(length) if length is not None else -1
        if size > self._limits.max_body_size:
            raise _RefusedError(self._too_large())
        if size > _DIRECT_BODY_ABOVE or headers.get(b"expect"):
            refusal = self._routes.refuse_head(request, max(size, 0))
            if refusal is not None:
                raise _RefusedError(refusal)
        if self._head_text and self._keep_alive and not self._is_http_10:
            head = KnownHead(
                request.method, request.target, headers, self._raw_headers, max(size, 0)
            )
            self._heads.keep(self._head_text, head)
        self._body.expect(size, headers.get(b"inference-header-content-length", b""))
        if headers.get(b"expect", b"").lower() == b"100-continue":
            self._awaits_continue = True
            self._send_continue()

    def _send_continue(self) -> None:
        if self._awaits_continue and not self._exchanges and self.transport is not None:
            self._awaits_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._awaits_continue = False
        self._body.append(body)
        if self._body.size > self._limits.max_body_size:
            raise _RefusedError(self._too_large())

    def on_chunk_header(self) -> None:
        self._chunk_count += 1
        if self._chunk_count > self._limits.max_chunk_count:
            raise _RefusedError(
                text_error(400, f"more than {self._limits.max_chunk_count} chunks in a body")
            )

    def on_message_complete(self) -> None:
        self._finish_message()

    def _too_large(self) -> HttpResponse:
        return text_error(
            413, f"the request body exceeds the limit of {self._limits.max_body_size} bytes"
        )

    # --- messages --------------------------------------------------------------------------

    def _finish_message(self) -> None:
        request = self._request
        assert request is not None
        request.body = self._body.view()
        keep_alive = self._keep_alive and not self._server.closing
        exchange = Exchange(self, request.method == b"HEAD", keep_alive)
        exchange.is_http_10 = self._is_http_10
        self._reset_message()
        self._handle(request, exchange)

    def _handle(self, request: HttpRequest, exchange: Exchange) -> None:
        self._exchanges.append(exchange)
        try:
            exchange.set_cancel(self._routes.handle(request, exchange))
        except Exception:
            logger.exception("a route failed unexpectedly path=%r", request.path)
            exchange(text_error(500, "internal error, see the server's log"))

    def _refuse(self, response: HttpResponse) -> None:
        """Answer a message that cannot be read to its end, then close."""
        self._is_refused = True
        self._reset_message()
        exchange = Exchange(self, False, False)
        self._exchanges.append(exchange)
        exchange(response)

    def flush(self) -> None:
        """Write every answer that is ready and in turn."""
        if self._is_parsing:
            self._is_flush_due = True
            return
        if self.transport is None:
            return
        parts: list[bytes | memoryview] = []
        must_close = False
        while self._exchanges and not must_close:
            head = self._exchanges[0]
            parts += head.output
            if not head.is_done:
                head.output = []
                break
            must_close = not head.keep_alive
            self._exchanges.popleft()
        if parts:
            self._write(parts)
        if must_close:
            self._close()
        elif self._awaits_continue:
            self._send_continue()
        if not self._is_reading:
            self._adjust_reading()

    def _write(self, parts: list[bytes | memoryview]) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if len(parts) == 1:
            transport.write(parts[0])
        elif sum(map(len, parts)) < 64 * 1024:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)

    def _close(self) -> None:
        transport = self.transport
        if transport is None:
            return
        for exchange in self._exchanges:
            exchange.abandon()
        self._exchanges.clear()
        if self._is_refused and transport.can_write_eof():
            # Closing with unread input would reset the connection before the client has read why.
            transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, transport.close)
        else:
            transport.close()

    def shut_down(self) -> None:
        """Close when idle; otherwise after the answers in progress."""
        for exchange in self._exchanges:
            exchange.keep_alive = False
        if not self._exchanges and self.transport is not None:
            self.transport.close()

    def check_progress(self) -> None:
        """Called now and then: give up on a request that has begun and does not go on."""
        is_slow = self._request is None or self._received < self._limits.least_progress
        if self._is_overdue and is_slow and self._is_reading and not self._is_refused:
            self._refuse(text_error(408, "the request did not arrive completely in time"))
            self.flush()
        self._is_overdue = self._is_begun and self._is_reading  # if it is no further next time
        self._received = 0

    def check_backlog(self) -> None:
        transport = self.transport
        if transport is None or not self._is_write_paused:
            return
        if transport.get_write_buffer_size() > self._limits.max_stream_backlog:
            logger.warning("closing a connection whose client does not read its stream")
            transport.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
