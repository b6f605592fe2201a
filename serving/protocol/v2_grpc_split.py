"""ModelInferRequest off the wire without copying its tensors: raw contents become views.

What is left beside them is small, and often the same from one request to the next: it is parsed by
protobuf, once for each different text. Whatever looks unusual is left to protobuf as a whole, which
then decides. Pure but for the cache; loop thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from serving.errors import InvalidArgumentError
from serving.protocol.service_pb import pb

_RAW = 0x3A
"""The tag of raw_input_contents: field 7, with a length."""
_ID = 0x1A
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_MOST_CACHED_BYTES = 2048
_MOST_SCANNED = 4096
"""Bytes before the first tensor that are looked through for its place."""
MALFORMED = (
    "Unable to parse request: its bytes are no message of this method; client and server must use "
    "the same version of the protocol"
)

Bytes = bytes | memoryview


class _UnusualError(Exception):
    """Nothing that this module reads."""


@dataclass(frozen=True, slots=True)
class InputHead:
    """An input without its raw content."""

    name: str
    datatype: str
    shape: list[int]
    parameters: Any
    """A map of InferParameter; None where it is empty."""
    contents: Any
    """Typed contents; None where there are none."""


@dataclass(frozen=True, slots=True)
class OutputHead:
    name: str
    parameters: Any


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A ModelInferRequest without id and raw contents. Shared by requests: it must not change."""

    model_name: str
    model_version: str
    parameters: list[tuple[str, Any]]
    inputs: list[InputHead]
    outputs: list[OutputHead]

    @classmethod
    def of(cls, message: Any) -> RequestHead:
        return cls(
            message.model_name,
            message.model_version,
            list(message.parameters.items()),
            [
                InputHead(
                    item.name,
                    item.datatype,
                    list(item.shape),
                    item.parameters or None,
                    item.contents if item.HasField("contents") else None,
                )
                for item in message.inputs
            ],
            [OutputHead(item.name, item.parameters or None) for item in message.outputs],
        )


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A ModelInferRequest in parts."""

    head: RequestHead
    id: str
    raw: Sequence[Bytes]
    """raw_input_contents."""

    @classmethod
    def of(cls, message: Any) -> SplitRequest:
        """Of a message that was parsed as a whole."""
        return cls(RequestHead.of(message), message.id, message.raw_input_contents)


def parse(message: Any, data: Bytes) -> Any:
    """A message of the class `message`. Raises InvalidArgumentError for bytes that are none."""
    try:
        return message.FromString(data)
    except DecodeError:
        raise InvalidArgumentError(MALFORMED) from None


def split_request(data: Bytes) -> SplitRequest:
    """Raises InvalidArgumentError for bytes that are no ModelInferRequest."""
    view = memoryview(data)
    try:
        rest, request_id, raw = _split(view)
    except (_UnusualError, IndexError, UnicodeDecodeError):
        return SplitRequest.of(parse(pb.ModelInferRequest, data))
    parsed = _parsed if len(rest) <= _MOST_CACHED_BYTES else _parse_anew
    return SplitRequest(parsed(rest), request_id, raw)


def _parse_anew(rest: bytes) -> RequestHead:
    return RequestHead.of(parse(pb.ModelInferRequest, rest))


_parsed = functools.lru_cache(maxsize=512)(_parse_anew)


def _split(view: memoryview) -> tuple[bytes, str, list[Bytes]]:
    raw: list[Bytes] = []
    rest: list[memoryview] = []
    request_id = ""
    at, end, kept = 0, len(view), 0
    while at < end:
        start = at
        tag, at = (view[at], at + 1) if view[at] < 0x80 else _varint(view, at)
        if tag & 7 != _LENGTH:
            at = _skip(view, at, tag & 7)
        else:
            size, at = (view[at], at + 1) if view[at] < 0x80 else _varint(view, at)
            begin, at = at, at + size
            if tag in (_RAW, _ID):
                if at > end:
                    raise _UnusualError
                if tag == _RAW:
                    raw.append(view[begin:at])
                else:
                    request_id = str(view[begin:at], "utf-8")
                if start > kept:
                    rest.append(view[kept:start])
                kept = at
        if tag < 8:  # there is no field 0
            raise _UnusualError
    if at != end:
        raise _UnusualError
    if end > kept:
        rest.append(view[kept:end])
    return (bytes(rest[0]) if len(rest) == 1 else b"".join(rest)), request_id, raw


def _skip(view: memoryview, at: int, kind: int) -> int:
    if kind == _VARINT:
        return _varint(view, at)[1]
    if kind == _EIGHT_BYTES:
        return at + 8
    if kind == _FOUR_BYTES:
        return at + 4
    raise _UnusualError


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 31:  # longer than any message
            raise _UnusualError


def first_raw_offset(start: memoryview) -> int:
    """Where the first raw tensor begins, of a message that begins with `start`; 0: unknown."""
    at, end = 0, min(len(start), _MOST_SCANNED)
    try:
        while at < end:
            tag, at = _varint(start, at)
            if tag & 7 != _LENGTH:
                at = _skip(start, at, tag & 7)
                continue
            size, at = _varint(start, at)
            if tag == _RAW:
                return at
            at += size
    except (_UnusualError, IndexError):
        pass
    return 0
