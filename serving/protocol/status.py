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


def http_status(code: ErrorCode) -> int:
    return _HTTP[code]


def grpc_status(code: ErrorCode) -> grpc.StatusCode:
    import grpc  # the console imports this module and has no use for grpc's 100 ms and threads

    return grpc.StatusCode[_GRPC[code]]
