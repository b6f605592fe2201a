"""The one table from core error codes to HTTP and gRPC statuses.

Pure functions, entered by any thread. Source: spec protocol_http.md A, protocol_grpc.md A.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.errors import ErrorCode

if TYPE_CHECKING:
    import grpc

_HTTP: dict[ErrorCode, int] = {
    ErrorCode.UNKNOWN: 400,
    ErrorCode.INTERNAL: 500,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.INVALID_ARG: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.ALREADY_EXISTS: 400,
    ErrorCode.CANCELLED: 400,
}

_GRPC: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN: "UNKNOWN",
    ErrorCode.INTERNAL: "INTERNAL",
    ErrorCode.NOT_FOUND: "NOT_FOUND",
    ErrorCode.INVALID_ARG: "INVALID_ARGUMENT",
    ErrorCode.UNAVAILABLE: "UNAVAILABLE",
    ErrorCode.UNSUPPORTED: "UNIMPLEMENTED",
    ErrorCode.ALREADY_EXISTS: "ALREADY_EXISTS",
    ErrorCode.CANCELLED: "CANCELLED",
}

_MAX_DETAILS_BYTES = 6144
_PERCENT = 0x25


def http_status(code: ErrorCode) -> int:
    return _HTTP[code]


def grpc_status(code: ErrorCode) -> grpc.StatusCode:
    import grpc  # the console imports this module and has no use for grpc's 100 ms and threads

    return grpc.StatusCode[_GRPC[code]]


def grpc_details(message: str) -> str:
    """The message, cut to what travels: gRPC clients refuse trailers of more than 8 KiB.

    Control characters and everything beyond ASCII take three bytes for each byte on the wire.
    """
    raw = message.encode()
    if 3 * len(raw) <= _MAX_DETAILS_BYTES:
        return message
    size = 0
    for end, byte in enumerate(raw):
        size += 1 if 0x20 <= byte < 0x7F and byte != _PERCENT else 3
        if size > _MAX_DETAILS_BYTES:
            return raw[:end].decode("utf-8", "ignore") + " ... (cut)"
    return message
