"""Header blocks (HPACK, RFC 7541): read with a cache, written as constants. Loop thread.

We announce a dynamic table of size 0. Once a client has put that into force, equal blocks mean
equal headers, and a dictionary replaces decoding. Tables and Huffman code are those of the package
`hpack`; the loop here, unlike its, copies nothing and stops at a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from serving.frontends.http2.frames import Code, ConnectionFaultError

Header = tuple[bytes, bytes]
T = TypeVar("T")

_MOST_CACHED = 1024
_MOST_CACHED_BYTES = 2048
"""Of one block; larger ones are rare, and would let a client fill the memory."""
_ENTRY_OVERHEAD = 32
_MOST_TABLE = 4096
"""Of a client that has not yet heard of ours, or keeps a table nevertheless."""
_MOST_INTEGER = 2**28


class BlockCache(Generic[T]):
    """What blocks mean where no dynamic table is in use; shared by all connections of a server."""

    def __init__(self) -> None:
        self._known: dict[bytes, T] = {}
        self.get = self._known.get

    def __len__(self) -> int:
        return len(self._known)

    def put(self, block: bytes, meaning: T) -> None:
        if len(block) > _MOST_CACHED_BYTES:
            return
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()  # clients with ever new headers; the others pay once in a while
        self._known[block] = meaning


class HeaderReader(Generic[T]):
    """The decoder of one connection; `make` turns a list of headers into what the caller wants."""

    def __init__(
        self, make: Callable[[list[Header]], T], cache: BlockCache[T], max_list_size: int
    ) -> None:
        self._make = make
        self._cache = cache
        self._max_list_size = max_list_size
        self._table = HeaderTable()
        self._is_stateless = False

    def read(self, block: bytes) -> T:
        """Raises ConnectionFaultError: nothing after a block that cannot be read can be read."""
        if self._is_stateless:
            known = self._cache.get(block)
            if known is not None:
                return known
        try:
            meaning = self._make(self._decode(block))
        except (HPACKError, IndexError) as error:
            raise ConnectionFaultError(
                Code.COMPRESSION_ERROR, f"a header block cannot be decoded: {error}"
            ) from None
        if self._is_stateless and not _is_table_size(block[:1]):
            self._cache.put(block, meaning)
        self._is_stateless = self._table.maxsize == 0
        return meaning

    def _decode(self, block: bytes) -> list[Header]:
        headers: list[Header] = []
        size, at, end = 0, 0, len(block)
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 0x7F)
                header = self._table.get_by_index(index)
            elif first & 0x40:
                header, at = self._literal(block, at, 0x3F)
                self._table.add(*header)
            elif first & 0x20:
                at = self._resize(block, at, is_first=not headers)
                continue
            else:
                header, at = self._literal(block, at, 0x0F)
            headers.append((header[0], header[1]))
            size += len(header[0]) + len(header[1]) + _ENTRY_OVERHEAD
            if size > self._max_list_size:
                raise ConnectionFaultError(
                    Code.ENHANCE_YOUR_CALM, f"headers of more than {self._max_list_size} bytes"
                )
        return headers

    def _resize(self, block: bytes, at: int, *, is_first: bool) -> int:
        size, at = _integer(block, at, 0x1F)
        if not is_first or size > _MOST_TABLE:
            raise ConnectionFaultError(
                Code.COMPRESSION_ERROR, "a dynamic table size out of place or above the limit"
            )
        self._table.maxsize = size
        return at

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Header, int]:
        index, at = _integer(block, at, mask)
        if index:
            name = self._table.get_by_index(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at


def _is_table_size(first: bytes) -> bool:
    return bool(first) and first[0] & 0xE0 == 0x20


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """A value and where it ends. Raises IndexError at the end of the block."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if value > _MOST_INTEGER or shift > 35:
            raise ConnectionFaultError(Code.COMPRESSION_ERROR, "an integer without end")
        if not byte & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] & 0x80
    size, at = _integer(block, at, 0x7F)
    end = at + size
    if end > len(block):
        raise IndexError("it ends within a string")
    raw = block[at:end]
    return (decode_huffman(raw) if is_huffman else raw), end


def write_headers(headers: list[Header]) -> bytes:
    """A block of literals that touch no table, so that it is the same for every client."""
    parts = []
    for name, value in headers:
        if name == b":status" and value == b"200":
            parts.append(b"\x88")
        else:
            parts += (b"\x00", _length(len(name)), name, _length(len(value)), value)
    return b"".join(parts)


def _length(size: int) -> bytes:
    if size < 0x7F:
        return bytes((size,))
    out, size = bytearray((0x7F,)), size - 0x7F
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
