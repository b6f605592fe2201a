"""The first bytes of engine files that cannot be built here."""

from __future__ import annotations

import struct


def header_bytes(
    magic: bytes, size: int, version: tuple[int, ...] = (11, 4, 0, 106), bits: int = 0
) -> bytes:
    """64 bytes that announce a file of `size`."""
    start = struct.pack("<4s4xQQ4B4sI", magic, 2, size, *version, magic, bits)
    return start.ljust(64, b"\0")


TENSORRT_PLAN = header_bytes(b"ftrt", 64)
