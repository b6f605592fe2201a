"""The JSON part of an HTTP inference request, decoded into typed structs with clear errors.

One msgspec decoder made at import does the work; what it does not read (NaN and Infinity tokens, a
byte-order mark, repeated members) goes through a slower, lenient path that behaves as Triton does.
Pure; any thread. Source: spec protocol_http.md C.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.errors import InvalidArgumentError
from serving.protocol.big_json import BigArray, cut_arrays, is_placeholder

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPECIAL_FLOAT = re.compile(rb"[\[,:\s](?:NaN|-?Infinity)\b")
_LONE_SURROGATE = re.compile(
    rb"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[dD][c-fC-F][0-9a-fA-F]{2})"
)
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_INPUT_PATH = re.compile(r"inputs\[\d+\]")
DATA_SOURCES = (
    "exactly one of 'data', 'binary_data_size' in 'parameters', and 'shared_memory_region' in "
    "'parameters'"
)


class TrailingDataError(InvalidArgumentError):
    """Bytes follow a complete JSON value."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


NO_DATA = msgspec.Raw(b"")


class InputHeader(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] = {}
    data: msgspec.Raw = NO_DATA
    """Undecoded JSON text; NO_DATA itself when the member is absent."""


class LooseInputHeader(msgspec.Struct):
    """As InputHeader, from values that Python's own json module decoded."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET


class OutputHeader(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class InferHeader(msgspec.Struct):
    inputs: list[InputHeader]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[OutputHeader] = []


class LooseInferHeader(msgspec.Struct):
    inputs: list[LooseInputHeader]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[OutputHeader] = []


@dataclass(slots=True)
class Decoded:
    """An infer header, and the large arrays that were cut out of it, by the index of the input."""

    header: InferHeader | LooseInferHeader
    arrays: dict[int, BigArray]


_decode = msgspec.json.Decoder(InferHeader).decode


def decode_big_infer(body: memoryview) -> Decoded | None:
    """As `decode_infer_header` for a large body, without holding the interpreter for long.

    None where the body must go the usual way, which also finds out what is wrong with it.
    """
    text, arrays = cut_arrays(body)
    if not arrays:
        return None
    try:
        header = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    inputs = [at for at, item in enumerate(header.inputs) if is_placeholder(item.data)]
    if len(inputs) != len(arrays) or _has_repeated_members(text):
        return None
    return Decoded(header, dict(zip(inputs, arrays, strict=True)))


def decode_infer_header(raw: bytes) -> InferHeader | LooseInferHeader:
    """Decode the JSON of an inference request. Raises InvalidArgumentError."""
    try:
        header = _decode(raw)
    except msgspec.ValidationError as error:
        raise _describe(error) from None
    except msgspec.DecodeError as error:
        return _decode_leniently(raw, error)
    except RecursionError:
        raise _too_deep() from None
    if _has_repeated_members(raw):
        return _decode_leniently(raw, None)
    return header


def parse_json(raw: memoryview | bytes, what: str) -> Any:
    """Decode any JSON body. Raises InvalidArgumentError naming `what` and the position."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as error:
        raise malformed(bytes(raw), error, what) from None


def malformed(
    raw: bytes, error: msgspec.DecodeError, what: str = "request body"
) -> InvalidArgumentError:
    """Name the byte where the JSON breaks, also where msgspec says only that it was truncated."""
    text = str(error)
    if "truncated" in text:
        surrogate = _LONE_SURROGATE.search(raw)
        if surrogate is not None:
            text = f"unpaired surrogate in a string (byte {surrogate.start()})"
        else:
            text = f"unexpected end, a closing quote, ']' or '}}' is missing (byte {len(raw)})"
    text = text.removeprefix("JSON is malformed: ")
    trailing = _TRAILING.fullmatch(text)
    if trailing is not None:
        position = int(trailing[1]) - 1  # msgspec counts one more here than elsewhere
        return TrailingDataError(
            f"failed to parse the {what} as JSON: unexpected data after its end (byte {position})",
            position,
        )
    return InvalidArgumentError(f"failed to parse the {what} as JSON: {text}")


def _has_repeated_members(raw: bytes) -> bool:
    """Cheap suspicion; the lenient decoder decides."""
    return raw.count(b'"inputs"') > 1 or raw.count(b'"outputs"') > 1


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        members.setdefault(key, value)
    return members


def _decode_leniently(raw: bytes, error: msgspec.DecodeError | None) -> LooseInferHeader:
    if raw.startswith(_BYTE_ORDER_MARK):
        raw = raw[len(_BYTE_ORDER_MARK) :]
    elif error is not None and not _SPECIAL_FLOAT.search(raw):
        raise malformed(raw, error)
    try:
        members = json.loads(raw, object_pairs_hook=_first_wins)
        if b"\\u" in raw:
            json.dumps(members, ensure_ascii=False).encode()  # json lets lone surrogates pass
        return msgspec.convert(members, LooseInferHeader)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.ValidationError as problem:
        raise _describe(problem) from None
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            "failed to parse the request body as JSON: unpaired surrogate in a string"
        ) from None
    except ValueError as problem:
        raise InvalidArgumentError(f"failed to parse the request body as JSON: {problem}") from None


def _describe(error: msgspec.ValidationError) -> InvalidArgumentError:
    text, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    text = text.replace("`", "'")
    if not path and text.startswith("Expected"):
        return InvalidArgumentError(
            f"the request body must be a JSON object with the member 'inputs': {text}"
        )
    if _INPUT_PATH.fullmatch(path) and text.startswith("Expected"):
        return InvalidArgumentError(
            f"Unable to parse '{path}': {text}; an input is an object with 'name', 'datatype', "
            f"'shape' and {DATA_SOURCES}"
        )
    return InvalidArgumentError(f"Unable to parse '{path or 'request'}': {text}")


def _too_deep() -> InvalidArgumentError:
    return InvalidArgumentError("the request body is nested too deeply")
