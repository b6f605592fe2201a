"""The one error hierarchy of the core.

Every error that a client may see is a `ServingError`. It carries one of Triton's eight core codes;
`serving.protocol.status` is the only place that maps codes to HTTP and gRPC statuses.
"""

from __future__ import annotations

import enum


class ErrorCode(enum.Enum):
    """Triton's core status codes (TRITONSERVER_Error_Code)."""

    UNKNOWN = "Unknown"
    INTERNAL = "Internal"
    NOT_FOUND = "Not found"
    INVALID_ARG = "Invalid argument"
    UNAVAILABLE = "Unavailable"
    UNSUPPORTED = "Unsupported"
    ALREADY_EXISTS = "Already exists"
    CANCELLED = "Cancelled"


class FailureReason(enum.Enum):
    """Label `reason` of the metric nv_inference_request_failure."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


class ServingError(Exception):
    """An error with a message for the caller: what, which model or file, how to mend it."""

    code = ErrorCode.UNKNOWN
    failure_reason = FailureReason.OTHER

    def __init__(self, message: str) -> None:
        if not message.isascii():
            # What is quoted from models and files may hold lone surrogates; no protocol can.
            message = message.encode("utf-8", "backslashreplace").decode()
        super().__init__(message)
        self.message = message


class InvalidArgumentError(ServingError):
    code = ErrorCode.INVALID_ARG


class NotFoundError(ServingError):
    code = ErrorCode.NOT_FOUND


class UnavailableError(ServingError):
    code = ErrorCode.UNAVAILABLE


class UnsupportedError(ServingError):
    code = ErrorCode.UNSUPPORTED


class AlreadyExistsError(ServingError):
    code = ErrorCode.ALREADY_EXISTS


class InternalError(ServingError):
    code = ErrorCode.INTERNAL


class CancelledError(ServingError):
    code = ErrorCode.CANCELLED
    failure_reason = FailureReason.CANCELED


class QueueRejectedError(UnavailableError):
    """The scheduler refused or expired the request: queue full, queue timeout, draining."""

    failure_reason = FailureReason.REJECTED


class BackendError(InternalError):
    """The model or its runtime failed while it executed."""

    failure_reason = FailureReason.BACKEND


class InstanceLostError(BackendError):
    """The instance cannot execute again, say because its GPU context is lost: its host says so, and
    starts it anew where it can (PT-28)."""


class ModelLoadError(InvalidArgumentError):
    """A load failed; the message names phase, file and cause."""


def error_from_code(code: ErrorCode, message: str, reason: FailureReason) -> ServingError:
    """Rebuild an error that crossed a process border as code, message and reason."""
    error = ServingError(message)
    error.code = code
    error.failure_reason = reason
    return error
