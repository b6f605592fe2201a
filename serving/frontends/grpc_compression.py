"""Compressed gRPC messages, both ways, with a bound on what inflates. Pure; any thread.

A message says itself whether it is compressed; how, the head of the call says (GRPC-044).
"""

from __future__ import annotations

import zlib

from serving.errors import InvalidArgumentError
from serving.frontends.grpc_wire import MAX_MESSAGE_BYTES
from serving.frontends.http2.stream import Part
from serving.protocol.compression import compress

_WINDOW_BITS = {"gzip": 31, "deflate": 15}
_ANY_RATIO_BELOW = 64 * 1024**2
_MAX_RATIO = 100
"""Of what inflates to more than `_ANY_RATIO_BELOW` bytes: no tensors that anybody sends do."""


def inflate(data: Part, encoding: str) -> bytes:
    """Raises InvalidArgumentError for what is not compressed so, or inflates without bound."""
    if encoding == "identity":
        raise InvalidArgumentError(
            "a message says that it is compressed, but the call has no grpc-encoding"
        )
    limit = min(MAX_MESSAGE_BYTES, max(_ANY_RATIO_BELOW, _MAX_RATIO * len(data)))
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        whole = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidArgumentError(f"a message is not valid {encoding} data: {error}") from None
    if len(whole) > limit:
        raise InvalidArgumentError(
            f"a message of {len(data)} bytes inflates to more than {limit} bytes; send it "
            "uncompressed"
        )
    if not inflater.eof or inflater.unused_data:
        raise InvalidArgumentError(f"a message is not one whole {encoding} stream")
    return whole


def deflate(parts: list[Part], encoding: str) -> tuple[list[Part], bool]:
    """The message, and whether it is compressed: not where that makes it longer."""
    packed = compress(parts, encoding)
    if len(packed) >= sum(map(len, parts)):
        return parts, False
    return [packed], True
