"""Frames of HTTP/2: the numbers of RFC 9113, and how the ones that we send are written. Pure."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE = 9
HEAD = struct.Struct(">HBBBL")
"""Length (16 high bits, 8 low ones), type, flags, stream."""
LEAST_FRAME_SIZE = 16_384
"""What every peer takes, and the most that a frame of ours other than DATA has."""
MOST_FRAME_SIZE = 2**24 - 1
MOST_WINDOW = 2**31 - 1
STREAM_MASK = 2**31 - 1
DEFAULT_WINDOW = 65_535
DEFAULT_TABLE_SIZE = 4096

DATA = 0
HEADERS = 1
PRIORITY = 2
RST_STREAM = 3
SETTINGS = 4
PUSH_PROMISE = 5
PING = 6
GOAWAY = 7
WINDOW_UPDATE = 8
CONTINUATION = 9

ACK = 0x1
END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE = 1
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

_SETTING = struct.Struct(">HL")
_LONG = struct.Struct(">L")
_TWO_LONGS = struct.Struct(">LL")


class Code(enum.IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFaultError(Exception):
    """The peer broke the protocol: the connection ends with GOAWAY."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


class StreamFaultError(Exception):
    """One stream ends with RST_STREAM, the connection goes on."""

    def __init__(self, stream_id: int, code: Code, reason: str) -> None:
        super().__init__(f"{code.name} on stream {stream_id}: {reason}")
        self.stream_id = stream_id
        self.code = code
        self.reason = reason


def head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a payload of `length` bytes."""
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    payload = b"".join(_SETTING.pack(name, value) for name, value in values)
    return head(len(payload), SETTINGS, 0, 0) + payload


SETTINGS_ACK = head(0, SETTINGS, ACK, 0)


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """Raises ConnectionFaultError where the length is no multiple of six."""
    if len(payload) % _SETTING.size:
        raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "SETTINGS has an odd length")
    return list(_SETTING.iter_unpack(payload))


def window_update(stream_id: int, increment: int) -> bytes:
    return head(4, WINDOW_UPDATE, 0, stream_id) + _LONG.pack(increment)


def reset(stream_id: int, code: Code) -> bytes:
    return head(4, RST_STREAM, 0, stream_id) + _LONG.pack(code)


def ping(data: bytes, *, is_ack: bool = False) -> bytes:
    return head(8, PING, ACK if is_ack else 0, 0) + data


def goaway(last_stream_id: int, code: Code, reason: str = "") -> bytes:
    payload = _TWO_LONGS.pack(last_stream_id, code) + reason.encode()
    return head(len(payload), GOAWAY, 0, 0) + payload


def read_long(payload: bytes) -> int:
    """The 31 bits of a window increment, or the 32 of an error code."""
    return int(_LONG.unpack(payload)[0])
