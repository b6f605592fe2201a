"""gRPC on the wire of HTTP/2: prefixes of messages, heads, trailers, timeouts. Pure.

Source: the gRPC protocol over HTTP/2 (PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import functools
import re
import struct

from serving.frontends.http2.header_blocks import Header, write_headers
from serving.protocol.status import GrpcStatus, grpc_details

PREFIX = struct.Struct(">BL")
"""Whether it is compressed, and how long it is."""
MAX_MESSAGE_BYTES = 2**31 - 1
"""Of a message, both ways (GRPC-047)."""
ACCEPTED = "identity, deflate, gzip"
_CONTENT_TYPE = (b"content-type", b"application/grpc")
_OK = (b":status", b"200")
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def read_timeout(text: str) -> float | None:
    """Seconds of a grpc-timeout; None where it is none."""
    match = _TIMEOUT.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


@functools.cache
def response_head(encoding: str) -> bytes:
    """The block of headers before the first message; `encoding`: of messages that say so."""
    headers: list[Header] = [_OK, _CONTENT_TYPE]
    if encoding:
        headers.append((b"grpc-encoding", encoding.encode()))
    headers.append((b"grpc-accept-encoding", ACCEPTED.encode()))
    return write_headers(headers)


GOOD_TRAILERS = write_headers([(b"grpc-status", b"0")])


def trailers(status: GrpcStatus, message: str, *, is_alone: bool) -> bytes:
    """The block of an error. `is_alone`: it is the whole answer, no head went before."""
    first: list[Header] = [_OK, _CONTENT_TYPE] if is_alone else []
    more: list[Header] = [(b"grpc-status", b"%d" % status)]
    if message:
        more.append((b"grpc-message", percent_encoded(grpc_details(message))))
    if status is GrpcStatus.UNIMPLEMENTED and is_alone:
        more.append((b"grpc-accept-encoding", ACCEPTED.encode()))
    return write_headers(first + more)


def http_refusal(status: int) -> bytes:
    """The block for a request that is not gRPC at all."""
    return write_headers([(b":status", b"%d" % status)])


def percent_encoded(message: str) -> bytes:
    """As `grpc-message` wants it: printable ASCII without `%`, everything else as %XX."""
    raw = message.encode("utf-8", "backslashreplace")
    return b"".join(
        bytes((byte,)) if 0x20 <= byte < 0x7F and byte != 0x25 else b"%%%02X" % byte for byte in raw
    )
