"""One request of a connection and its answer, kept until the answer's turn comes. Loop thread."""

from __future__ import annotations

from typing import Protocol

from serving.frontends.http_messages import (
    Body,
    Cancel,
    HttpResponse,
    ResponseStream,
    render_head,
)

_TWICE = "an HTTP request was answered twice"


class Connection(Protocol):
    def flush(self) -> None: ...

    def check_backlog(self) -> None:
        """Give up on a client that does not read what is streamed to it."""


class Exchange:
    """The `Reply` of one request, unary or streamed."""

    __slots__ = (
        "_cancel",
        "_connection",
        "_is_abandoned",
        "_is_chunked",
        "_is_head",
        "_is_started",
        "is_done",
        "is_http_10",
        "keep_alive",
        "output",
    )

    def __init__(self, connection: Connection, is_head: bool, keep_alive: bool) -> None:
        self._connection = connection
        self._is_head = is_head
        self.output: list[Body] = []
        """What is ready to be written; whoever takes it leaves an empty list."""
        self._cancel: Cancel | None = None
        self._is_started = False
        self._is_abandoned = False
        self._is_chunked = False
        self.keep_alive = keep_alive
        self.is_http_10 = False
        self.is_done = False

    def set_cancel(self, cancel: Cancel | None) -> None:
        if not self.is_done:
            self._cancel = cancel

    def __call__(self, response: HttpResponse) -> None:
        if self._is_started:
            raise RuntimeError(_TWICE)
        self._is_started = True
        if self._is_abandoned:
            return
        self.keep_alive = self.keep_alive and not response.must_close
        head = response.head
        if not head or not self.keep_alive or self.is_http_10:
            head = render_head(
                response,
                framing=b"Content-Length: %d\r\n" % response.size,
                keep_alive=self.keep_alive,
                http_10=self.is_http_10,
            )
        self.output = [head] if self._is_head else [head, *response.parts]
        self.is_done = True
        self._cancel = None
        self._connection.flush()

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        """Chunked, or until the connection closes for a client of HTTP/1.0."""
        if self._is_started:
            raise RuntimeError(_TWICE)
        self._is_started = True
        if self._is_abandoned:
            return self
        self._is_chunked = not self.is_http_10
        self.keep_alive = self.keep_alive and self._is_chunked
        framing = b"Transfer-Encoding: chunked\r\n" if self._is_chunked else b""
        self.output = [
            render_head(response, framing=framing, keep_alive=self.keep_alive),
            *response.parts,
        ]
        self._connection.flush()
        return self

    def write(self, data: bytes) -> None:
        if self.is_done or not data:
            return
        self.output.append(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)
        self._connection.flush()
        self._connection.check_backlog()

    def end(self) -> None:
        if not self.is_done:
            if self._is_chunked:
                self.output.append(b"0\r\n\r\n")
            self.is_done = True
            self._cancel = None
            self._connection.flush()

    def abandon(self) -> None:
        """The client is gone: nobody waits for the answer."""
        cancel, self._cancel = self._cancel, None
        self.is_done = True
        self._is_abandoned = True
        self.output = []
        if cancel is not None:
            cancel()
