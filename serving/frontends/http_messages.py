"""What passes between an HTTP adapter and the routes: a request, a response, and the way to reply.

Transport-neutral: nothing here knows of sockets. Loop thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from serving.errors import InvalidArgumentError, ServingError
from serving.protocol.status import http_status
from serving.protocol.v2_json import parse_json

Body = bytes | memoryview
JSON = b"application/json"
TEXT = b"text/plain"
OCTETS = b"application/octet-stream"
HEADER_LENGTH = b"Inference-Header-Content-Length"
HEADER_LENGTH_KEY = HEADER_LENGTH.lower()


@dataclass(slots=True)
class HttpRequest:
    method: bytes
    target: bytes
    """As on the request line: path and query."""
    headers: dict[bytes, bytes]
    """Names in lower case; repeated ones joined by ", "."""
    body: memoryview = memoryview(b"")
    raw_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Names as they came."""
    received_ns: int = field(default_factory=time.monotonic_ns)
    """When its head was complete."""

    @property
    def path(self) -> bytes:
        return self.target.partition(b"?")[0]

    def header(self, name: str) -> str | None:
        """By its name in lower case."""
        value = self.headers.get(name.encode("latin-1"))
        return None if value is None else value.decode("latin-1")


@dataclass(slots=True)
class HttpResponse:
    status: int
    parts: list[Body] = field(default_factory=list)
    content_type: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Besides Content-Type, Content-Length and Connection."""
    must_close: bool = False
    head: bytes = b""
    """As it goes out on a connection that goes on; empty: it is made of the fields above."""

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)


class ResponseStream(Protocol):
    """An open response of unknown length."""

    def write(self, data: bytes) -> None: ...

    def end(self) -> None: ...


class Reply(Protocol):
    """Answers one request, from the loop thread, exactly once."""

    def __call__(self, response: HttpResponse) -> None: ...

    def start_stream(self, response: HttpResponse) -> ResponseStream: ...


Cancel = Callable[[], None]
"""The client went away; called at most once, and only before the answer is complete."""


Handler = Callable[[HttpRequest, Reply, str, int], Cancel | None]
"""Request, reply, model name ("" where the route has none), version (-1 where none is given)."""


class Routes(Protocol):
    """What an adapter needs of the routes behind it."""

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        """Answer now or later through `reply`. Raises nothing."""

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        """A chance to refuse a large body before it is read."""


def json_response(value: object, status: int = 200) -> HttpResponse:
    return HttpResponse(status, [orjson.dumps(value)], JSON)


def text_error(status: int, message: str) -> HttpResponse:
    """Triton's error body: one key, no code, no nesting."""
    return HttpResponse(status, [orjson.dumps({"error": message})], JSON)


def error_response(error: ServingError) -> HttpResponse:
    return text_error(http_status(error.code), error.message)


_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
    505: b"HTTP Version Not Supported",
}
_STATUS_LINES = {
    status: b"HTTP/1.1 %d %s\r\n" % (status, reason) for status, reason in _REASONS.items()
}


def render_head(
    response: HttpResponse, *, framing: bytes, keep_alive: bool, http_10: bool = False
) -> bytes:
    """Status line and headers. `framing` is the Content-Length or Transfer-Encoding line."""
    lines = [_STATUS_LINES.get(response.status) or b"HTTP/1.1 %d Unknown\r\n" % response.status]
    if response.content_type:
        lines.append(b"Content-Type: " + response.content_type + b"\r\n")
    for name, value in response.headers:
        lines.append(name + b": " + value + b"\r\n")
    lines.append(framing)
    if not keep_alive:
        lines.append(b"Connection: close\r\n")
    elif http_10:
        lines.append(b"Connection: keep-alive\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


def collect_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = headers[key] + b", " + value if key in headers else value
    return headers


def json_members(request: HttpRequest) -> dict[str, Any]:
    """The members of a body that is a JSON object, or empty. Raises InvalidArgumentError."""
    if not len(request.body):
        return {}
    members = parse_json(request.body, "request body")
    if not isinstance(members, dict):
        raise InvalidArgumentError("the request body must be a JSON object")
    return members


def check_plain_json(request: HttpRequest, route: str, max_size: int) -> None:
    """Raises InvalidArgumentError for a body that is compressed or too large for a loop turn."""
    coding = request.headers.get(b"content-encoding", b"identity")
    if coding.strip().lower() not in {b"", b"identity"}:
        raise InvalidArgumentError(
            f"{route} takes no Content-Encoding, got '{coding.decode('latin-1')[:40]}'"
        )
    if len(request.body) > max_size:
        raise InvalidArgumentError(
            f"the request has {len(request.body)} bytes of JSON, more than --http-max-input-size "
            f"allows ({max_size})"
        )
