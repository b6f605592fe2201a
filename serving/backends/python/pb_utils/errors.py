"""`TritonError` and `TritonModelException` (PB-024, PB-025)."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from serving.errors import ErrorCode, FailureReason, ServingError, error_from_code


class TritonModelException(Exception):  # noqa: N818 - Triton's name
    """May be raised by a model from initialize, execute and finalize."""


class _Codes(type):
    def __getattr__(cls, name: str) -> NoReturn:
        known = ", ".join(code.name for code in ErrorCode)
        raise AttributeError(
            f"type object 'c_python_backend_utils.TritonError' has no attribute '{name}'; the "
            f"codes are {known}"
        )


class TritonError(metaclass=_Codes):
    """An error that a model answers one request with."""

    UNKNOWN: ClassVar[int] = 0
    INTERNAL: ClassVar[int] = 1
    NOT_FOUND: ClassVar[int] = 2
    INVALID_ARG: ClassVar[int] = 3
    UNAVAILABLE: ClassVar[int] = 4
    UNSUPPORTED: ClassVar[int] = 5
    ALREADY_EXISTS: ClassVar[int] = 6
    CANCELLED: ClassVar[int] = 7

    __slots__ = ("_code", "_message")

    def __init__(self, message: str, code: int = 1) -> None:
        if not isinstance(message, str):
            raise TypeError(f"the message must be str, not {type(message).__name__}")
        if code not in range(len(_CODES)):
            raise TypeError(f"{code!r} is no code of TritonError")
        self._message = message
        self._code = code

    def __repr__(self) -> str:
        return f"<TritonError {_CODES[self._code].name}: {self._message}>"

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code

    @classmethod
    def _of(cls, error: ServingError) -> TritonError:
        return cls(error.message, _CODES.index(error.code))

    def _core_error(self) -> ServingError:
        return error_from_code(_CODES[self._code], self._message, FailureReason.BACKEND)


_CODES = tuple(ErrorCode)
