"""Request parameters: the reserved names and their types, the same for HTTP and gRPC.

Source: spec HTTP-035, GRPC-022, SCH-017. Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from serving.errors import InvalidArgumentError, UnsupportedError
from serving.request import InferenceRequest
from serving.response import ParameterValue

MAX_CORRELATION_ID_LENGTH = 128
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

RESERVED = frozenset(
    {
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    }
)


def apply_parameter(request: InferenceRequest, name: str, value: object) -> None:
    """Put one request parameter where it belongs: a field of the request, or its parameters."""
    if name == "sequence_id":
        request.correlation_id = _correlation_id(value)
    elif name == "sequence_start":
        request.sequence_start = bool_value(name, value)
    elif name == "sequence_end":
        request.sequence_end = bool_value(name, value)
    elif name == "priority":
        request.priority = unsigned_value(name, value)
    elif name == "timeout":
        request.timeout_us = unsigned_value(name, value)
    elif name.startswith("triton_"):
        raise InvalidArgumentError(
            f"parameter '{name}' is refused: names that start with 'triton_' are reserved"
        )
    elif name != "headers":
        request.parameters[name] = custom_value(name, value)


def forward_headers(
    request: InferenceRequest,
    pattern: re.Pattern[str],
    headers: Iterable[tuple[str | bytes, str | bytes]],
) -> None:
    """Headers, or gRPC metadata, whose names match become string parameters. HTTP-044, GRPC-027.

    Raises InvalidArgumentError for a name that is reserved.
    """
    for name, value in headers:
        text = _text(name)
        if pattern.search(text):
            _apply_forwarded_header(request, text, _text(value))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _apply_forwarded_header(request: InferenceRequest, name: str, value: str) -> None:
    if name in RESERVED or name.startswith("triton_"):
        raise InvalidArgumentError(
            f"header '{name}' cannot be forwarded as a request parameter: the name is reserved"
        )
    request.parameters[name] = value


def version_number(digits: str) -> int:
    """The number that `digits` spell; what no version can have becomes 2**63."""
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) < 19 else 2**63


def bool_value(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(name, "a bool", value)
    return value


def unsigned_value(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= UINT64_MAX:
        raise _wrong_type(name, "an unsigned 64-bit integer", value)
    return value


def custom_value(name: str, value: object) -> ParameterValue:
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise InvalidArgumentError(f"parameter '{name}' is out of the range of int64: {value}")
    if isinstance(value, str | bool | int | float):
        return value
    raise _wrong_type(name, "a string, an int, a bool or a double", value)


def _correlation_id(value: object) -> int | str:
    if isinstance(value, str):
        if len(value) > MAX_CORRELATION_ID_LENGTH:
            raise UnsupportedError(
                f"parameter 'sequence_id' has {len(value)} characters; string correlation ids may "
                f"have at most {MAX_CORRELATION_ID_LENGTH}"
            )
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= UINT64_MAX:
        return value
    raise _wrong_type("sequence_id", "an unsigned integer or a string", value)


_JSON_NAMES = {dict: "an object", list: "an array", type(None): "null", str: "a string"}


def _wrong_type(name: str, expected: str, value: object) -> InvalidArgumentError:
    got = _JSON_NAMES.get(type(value)) or repr(value)
    return InvalidArgumentError(f"parameter '{name}' must be {expected}, got {got}")
