"""Content codings of HTTP bodies: gzip and deflate, both ways, with a bound on what inflates.

Pure; any thread. Source: spec HTTP-042, HTTP-043.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from serving.errors import InvalidArgumentError, UnsupportedError

_WINDOW_BITS = {"gzip": 31, "deflate": 15}
SUPPORTED = "gzip, deflate"


def decompress(body: memoryview, coding: str, limit: int) -> bytes:
    """Inflate a request body. `limit` bounds the result in bytes.

    Raises: UnsupportedError for an unknown coding, InvalidArgumentError for a broken or too large
    body.
    """
    if coding not in _WINDOW_BITS:
        raise UnsupportedError(
            f"unsupported Content-Encoding '{coding}'; this server reads: {SUPPORTED}"
        )
    parts: list[bytes] = []
    size = 0
    pending: bytes | memoryview = body
    while len(pending):
        inflater = zlib.decompressobj(_WINDOW_BITS[coding])
        try:
            part = inflater.decompress(pending, limit - size + 1)
        except zlib.error as error:
            raise InvalidArgumentError(
                f"the request body is not valid {coding} data: {error}"
            ) from None
        size += len(part)
        if size > limit:
            raise InvalidArgumentError(
                f"the request body inflates to more than {limit} bytes; raise "
                "--http-max-input-size or send it uncompressed"
            )
        if not inflater.eof:
            raise InvalidArgumentError(
                f"the request body is truncated: its {coding} stream does not end"
            )
        parts.append(part)
        pending = inflater.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def compress(parts: Iterable[bytes | memoryview], coding: str) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, _WINDOW_BITS[coding])
    out = [deflater.compress(part) for part in parts]
    out.append(deflater.flush())
    return b"".join(out)


def choose_coding(accept_encoding: str) -> str:
    """The coding with the highest weight in Accept-Encoding; "" for identity.

    Ties go to the first listed; unknown codings and malformed weights do not count.
    """
    best, best_weight = "", 0.0
    for item in accept_encoding.split(","):
        name, _, rest = item.partition(";")
        coding = name.strip().lower()
        if coding not in _WINDOW_BITS and coding != "identity":
            continue
        weight = _weight(rest)
        if weight > best_weight:
            best, best_weight = coding, weight
    return "" if best == "identity" else best


def _weight(text: str) -> float:
    key, _, value = text.strip().partition("=")
    if not key:
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if key.strip().lower() == "q" and 0 <= weight <= 1 else 0.0
