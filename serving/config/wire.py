"""A minimal reader of the protobuf wire format that skips what nobody asks for.

Works on a buffer (a memory map, for large files), so that weights are never read. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Buffer(Protocol):
    def __getitem__(self, key: int, /) -> int: ...
    def __len__(self) -> int: ...


class WireError(ValueError):
    """The bytes are not a protobuf message."""


class Field(NamedTuple):
    number: int
    value: int
    """Of a varint or fixed field; of a length-delimited one, where it starts."""
    end: int
    """Of a length-delimited field, where it ends; else 0."""

    @property
    def has_length(self) -> bool:
        return self.end > 0


def fields(buffer: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in buffer[start:end], without looking into them.

    Raises: WireError.
    """
    position = start
    while position < end:
        key, position = _varint(buffer, position, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(f"field number 0 at byte {position}")
        if kind == 0:
            value, position = _varint(buffer, position, end)
            yield Field(number, value, 0)
        elif kind == 2:
            size, position = _varint(buffer, position, end)
            if size > end - position:
                raise WireError(f"a field at byte {position} is longer than the file: truncated?")
            yield Field(number, position, position + size)
            position += size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            if size > end - position:
                raise WireError(f"truncated at byte {position}")
            yield Field(number, 0, 0)
            position += size
        else:
            raise WireError(f"unknown wire type {kind} at byte {position}")


def _varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise WireError(f"truncated at byte {position}")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WireError(f"a number at byte {position} is too long")
