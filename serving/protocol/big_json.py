"""Large numeric tensors in JSON, read and written piece by piece.

A JSON library holds the interpreter lock for as long as one call takes: half a second for a body of
60 MB, during which no other thread runs. Here no call sees more than some 100 KB, so that a thread
that converts such a tensor lets the event loop run in between. What is not plain (strings, objects,
empty lists, faults) is left to the usual way, which names what is wrong. Pure; any thread.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

BIG_BYTES = 1024 * 1024
"""JSON of this size and more is worth a thread."""
BIG_ELEMENTS = 100_000
"""As many numbers make about as much."""
_MIN_ARRAY_BYTES = 64 * 1024
_WINDOW = 128 * 1024
_PIECE_BYTES = 64 * 1024
_PIECE_ELEMENTS = 8 * 1024
_MAX_DEPTH = 100
_OVERLAP = 256

_DATA = re.compile(rb'"data"[ \t\r\n]{0,64}:[ \t\r\n]{0,64}\[')
_GAP = re.compile(rb"[\[,][ \t\r\n]*[\],]")
"""A place without a value: an empty list, which is rare, or a fault."""
_OTHERS = re.compile(rb'["{]')
"""What no array of numbers has."""
_FLAT = bytes.maketrans(b"[]", b"  ")
_QUOTE, _BRACE, _COMMA = 0x22, 0x7B, 0x2C
_STEPS = np.zeros(256, np.int8)
_STEPS[0x5B], _STEPS[0x5D] = 1, -1
PLACEHOLDER = b'"%b"' % secrets.token_hex(16).encode()
"""Nobody can guess it, so no client can send it."""

Decode = Callable[[bytes], list[Any]]


@dataclass(frozen=True, slots=True)
class BigArray:
    """The text of an array of numbers or booleans, with its brackets."""

    text: memoryview
    count: int
    """Elements, if the text is sound: it has not been parsed yet."""

    def convert(self, decode: Decode, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """The flat elements; None where the text is not plain. Raises OverflowError."""
        array = np.empty(self.count, dtype)
        filled = 0
        try:
            for piece in self._pieces():
                values = decode(b"[%b]" % piece)
                array[filled : filled + len(values)] = np.array(values, dtype)
                filled += len(values)
                time.sleep(0)  # lets another thread have the interpreter now, not in 5 ms
        except (msgspec.DecodeError, ValueError):
            return None
        return array if filled == self.count else None

    def _pieces(self) -> Iterator[bytes]:
        """Cut at commas, without brackets. Raises ValueError where a value is missing."""
        start, end = 1, len(self.text) - 1
        before = b"["
        while start <= end:
            cut, after = self._next_comma(min(start + _PIECE_BYTES, end), end)
            piece = bytes(self.text[start:cut])
            flat = piece.translate(_FLAT)
            if flat != piece and _GAP.search(before + piece + after):
                raise ValueError("a value is missing")
            yield flat
            start, before = cut + 1, b","

    def _next_comma(self, start: int, end: int) -> tuple[int, bytes]:
        while start < end:
            found = bytes(self.text[start : min(start + 1024, end)]).find(b",")
            if found >= 0:
                return start + found, b","
            start += 1024
        return end, b"]"


def cut_arrays(body: memoryview) -> tuple[bytes, list[BigArray]]:
    """The body with placeholders for the values of "data" that are large arrays of numbers."""
    parts: list[bytes | memoryview] = []
    arrays: list[BigArray] = []
    taken = position = 0
    while (start := _find_data(body, position)) >= 0:
        position = start + 1
        # Most are small; each must cost no more than its size, there may be a hundred thousand.
        is_small = _OTHERS.search(body, start, start + _MIN_ARRAY_BYTES) is not None
        array = None if is_small else _array_at(body, start)
        if array is None:
            continue
        position = start + len(array.text)
        if len(array.text) >= _MIN_ARRAY_BYTES:
            parts += [body[taken:start], PLACEHOLDER]
            arrays.append(array)
            taken = position
    parts.append(body[taken:])
    return b"".join(parts), arrays


def is_placeholder(data: object) -> bool:
    return isinstance(data, msgspec.Raw) and bytes(data) == PLACEHOLDER


def _find_data(body: memoryview, position: int) -> int:
    """Where the array of the next "data" begins, or -1."""
    while position < len(body):
        found = _DATA.search(body, position, position + _WINDOW)
        if found is not None:
            return found.end() - 1
        position += _WINDOW - _OVERLAP
    return -1


def _array_at(body: memoryview, start: int) -> BigArray | None:
    """None when it holds strings or objects, is too deep, or does not end."""
    depth = commas = 0
    for offset in range(start, len(body), _WINDOW):
        window = np.frombuffer(body[offset : offset + _WINDOW], np.uint8)
        steps = _STEPS[window]
        brackets = np.flatnonzero(steps)
        if brackets.size:
            depths = depth + np.cumsum(steps[brackets], dtype=np.int64)
            closed = np.flatnonzero(depths == 0)
            if closed.size:
                last = int(brackets[closed[0]])
                window = window[: last + 1]
                if _has_others(window):
                    return None
                commas += int(np.count_nonzero(window == _COMMA))
                return BigArray(body[start : offset + last + 1], commas + 1)
            if depths.max() > _MAX_DEPTH:
                return None
            depth = int(depths[-1])
        if _has_others(window):
            return None
        commas += int(np.count_nonzero(window == _COMMA))
    return None


def _has_others(window: NDArray[np.uint8]) -> bool:
    return bool(((window == _QUOTE) | (window == _BRACE)).any())


def array_pieces(flat: NDArray[Any]) -> Iterator[bytes]:
    """The JSON text of a flat array of numbers, in pieces."""
    opening = b"["
    for start in range(0, len(flat), _PIECE_ELEMENTS):
        piece = np.ascontiguousarray(flat[start : start + _PIECE_ELEMENTS])
        if piece.dtype.kind == "f" and not np.isfinite(piece).all():
            text = json.dumps(piece.tolist(), separators=(",", ":")).encode()
        else:
            text = orjson.dumps(piece, option=orjson.OPT_SERIALIZE_NUMPY)
        yield opening + text[1:-1]
        opening = b","
        time.sleep(0)
    yield b"]" if opening == b"," else b"[]"
