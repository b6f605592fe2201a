"""The head of a gRPC call: path, metadata, timeout, codings, or why it is refused. Pure.

A head is made once for each different header block and then used again: it must not change.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from serving.frontends import grpc_wire
from serving.frontends.grpc_wire import trailers
from serving.frontends.http2.frames import Code
from serving.frontends.http2.header_blocks import Header
from serving.protocol.status import GrpcStatus

_MAX_METADATA = 16 * 1024
"""Bytes, as HTTP/2 counts a header list; what grpcio takes at most."""
_PSEUDO = {b":method", b":path", b":scheme", b":authority"}
_NEEDED = {b":method", b":path", b":scheme"}
_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_PLUMBING = {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"}
"""Not metadata of the caller's."""
_NAME = re.compile(rb"[0-9a-z_.!#$%&'*+^`|~-]+")
_CODINGS = {"identity", "gzip", "deflate"}
_UNREADABLE = re.compile(rb"[\x00\r\n]")

Refusal = bytes | Code
"""A block of headers that is the whole answer, or why the stream is reset."""
Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class CallHead:
    path: str = ""
    metadata: Metadata = ()
    """In the order of the wire; values of names that end in -bin are bytes."""
    timeout_s: float | None = None
    encoding: str = "identity"
    """Of compressed messages that the client sends."""
    reply_encoding: str = ""
    """Of those that it gets; "" where they are not compressed."""
    refusal: Refusal | None = None

    def value(self, name: str) -> str:
        """The last textual value of a piece of metadata; empty where there is none."""
        found = ""
        for key, value in self.metadata:
            if key == name and isinstance(value, str):
                found = value
        return found


class HeadReader:
    """`level`: of the answers' compression, 0 none to 3 high (GRPC-044)."""

    def __init__(self, level: int) -> None:
        self._level = level

    def read(self, headers: list[Header]) -> CallHead:
        found: dict[bytes, bytes] = {}
        regular: list[Header] = []
        size = 0
        for name, value in headers:
            size += len(name) + len(value) + 32
            if name.startswith(b":"):
                if name not in _PSEUDO or name in found or regular:
                    return CallHead(refusal=Code.PROTOCOL_ERROR)
                found[name] = value
            elif not _NAME.fullmatch(name) or name in _CONNECTION or _UNREADABLE.search(value):
                return CallHead(refusal=Code.PROTOCOL_ERROR)
            else:
                regular.append((name, value))
        if not found.keys() >= _NEEDED:
            return CallHead(refusal=Code.PROTOCOL_ERROR)
        return self._of(found, regular, size)

    def _of(self, found: dict[bytes, bytes], regular: list[Header], size: int) -> CallHead:
        plumbing = {name: value.decode("latin-1") for name, value in regular if name in _PLUMBING}
        timeout_s = None
        encoding = plumbing.get(b"grpc-encoding", "identity")
        refusal: Refusal | None = None
        if found[b":method"] != b"POST":
            refusal = grpc_wire.http_refusal(405)
        elif not _is_grpc(plumbing.get(b"content-type", "")):
            refusal = grpc_wire.http_refusal(415)
        elif size > _MAX_METADATA:
            text = f"received metadata size exceeds limit ({size} vs. {_MAX_METADATA})"
            refusal = trailers(GrpcStatus.RESOURCE_EXHAUSTED, text, is_alone=True)
        elif encoding not in _CODINGS:
            text = f"grpc-encoding '{encoding}' is not supported; known are {grpc_wire.ACCEPTED}"
            refusal = trailers(GrpcStatus.UNIMPLEMENTED, text, is_alone=True)
        elif (text := plumbing.get(b"grpc-timeout", "")) or b"grpc-timeout" in plumbing:
            timeout_s = grpc_wire.read_timeout(text)
            if timeout_s is None:
                text = f"grpc-timeout '{text}' is no number of at most 8 digits with a unit"
                refusal = trailers(GrpcStatus.INVALID_ARGUMENT, text, is_alone=True)
        metadata = _metadata(regular)
        if metadata is None and refusal is None:
            text = "a value of metadata whose name ends in -bin is not base64"
            refusal = trailers(GrpcStatus.INVALID_ARGUMENT, text, is_alone=True)
        return CallHead(
            found[b":path"].decode("latin-1"),
            metadata or (),
            timeout_s,
            encoding,
            self._reply_encoding(plumbing.get(b"grpc-accept-encoding", "")),
            refusal,
        )

    def _reply_encoding(self, accepted: str) -> str:
        """As grpc chooses: the ones that both know stand in order, the level says which."""
        names = {name.strip() for name in accepted.split(",")}
        both = [name for name in ("gzip", "deflate") if name in names]
        if not self._level or not both:
            return ""
        return (both[0], both[len(both) // 2], both[-1])[self._level - 1]


def _is_grpc(content_type: str) -> bool:
    rest = content_type.lower().removeprefix("application/grpc")
    return rest != content_type.lower() and (not rest or rest[0] in "+; ")


def _metadata(regular: list[Header]) -> Metadata | None:
    """None where a binary value is not base64."""
    found: list[tuple[str, str | bytes]] = []
    for name, value in regular:
        if name in _PLUMBING:
            continue
        key = name.decode("latin-1")
        if not key.endswith("-bin"):
            found.append((key, value.decode("latin-1")))
            continue
        for item in value.split(b","):
            try:
                found.append((key, base64.b64decode(item + b"=" * (-len(item) % 4), validate=True)))
            except (binascii.Error, ValueError):
                return None
    return tuple(found)
