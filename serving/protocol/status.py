"""The one table from core error codes to HTTP and gRPC statuses.

Pure functions, entered by any thread. Source: spec protocol_http.md A, protocol_grpc.md A.
"""

from __future__ import annotations

import enum

from serving.errors import ErrorCode


class GrpcStatus(enum.IntEnum):
    """Status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


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

_GRPC: dict[ErrorCode, GrpcStatus] = {
    ErrorCode.UNKNOWN: GrpcStatus.UNKNOWN,
    ErrorCode.INTERNAL: GrpcStatus.INTERNAL,
    ErrorCode.NOT_FOUND: GrpcStatus.NOT_FOUND,
    ErrorCode.INVALID_ARG: GrpcStatus.INVALID_ARGUMENT,
    ErrorCode.UNAVAILABLE: GrpcStatus.UNAVAILABLE,
    ErrorCode.UNSUPPORTED: GrpcStatus.UNIMPLEMENTED,
    ErrorCode.ALREADY_EXISTS: GrpcStatus.ALREADY_EXISTS,
    ErrorCode.CANCELLED: GrpcStatus.CANCELLED,
}

_MAX_DETAILS_BYTES = 6144
_PERCENT = 0x25


def http_status(code: ErrorCode) -> int:
    return _HTTP[code]


def grpc_status(code: ErrorCode) -> GrpcStatus:
    return _GRPC[code]


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
