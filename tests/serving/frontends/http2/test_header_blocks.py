"""HPACK: decoding with a cache that is never wrong."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import ConnectionFaultError
from serving.frontends.http2.header_blocks import BlockCache, Header, HeaderReader, write_headers
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.http2.raw import Application, RawHttp2

NAMES = st.sampled_from([b"a", b":path", b"content-type", b"x-long-name"])
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=300)), max_size=8)


def reader(cache: BlockCache[list[Header]] | None = None) -> HeaderReader[list[Header]]:
    return HeaderReader(list, BlockCache() if cache is None else cache, 1 << 20)


@given(st.lists(HEADERS, max_size=5), st.booleans(), st.sampled_from([None, 0, 100]))
def test_what_an_encoder_writes_is_read(
    blocks: list[list[Header]], is_huffman: bool, table: int | None
) -> None:
    encoder, decoder = Encoder(), reader()
    if table is not None:
        encoder.header_table_size = table
    for headers in blocks:
        block = encoder.encode(headers, huffman=is_huffman)
        assert decoder.read(block) == headers


@given(HEADERS)
def test_what_we_write_any_decoder_reads(headers: list[Header]) -> None:
    decoded: Any = Decoder().decode(write_headers(headers), raw=True)
    assert [tuple(pair) for pair in decoded] == headers


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(block: bytes) -> None:
    with contextlib.suppress(ConnectionFaultError):
        reader().read(block)


def test_a_block_is_cached_only_where_no_table_is_in_use() -> None:
    cache: BlockCache[list[Header]] = BlockCache()
    first, second = reader(cache), reader(cache)
    headers = [(b"a", b"b")]
    indexing = Encoder().encode(headers)
    assert first.read(indexing) == headers
    assert len(cache) == 0
    assert first.read(b"\xbe") == headers  # its table has the entry

    assert second.read(b"\x20" + indexing) == headers
    assert len(cache) == 0  # a block that resizes the table is never kept
    assert second.read(indexing) == headers
    assert len(cache) == 1
    assert second.read(indexing) == headers

    third = reader(cache)
    assert third.read(indexing) == headers  # and its table has the entry, in spite of the cache
    assert third.read(b"\xbe") == headers


def test_the_cache_is_bounded() -> None:
    cache: BlockCache[int] = BlockCache()
    for number in range(5000):
        cache.put(b"%d" % number, number)
    assert len(cache) <= 1024
    cache.put(bytes(5000), 1)
    assert cache.get(bytes(5000)) is None


def test_a_table_may_not_grow_beyond_what_is_usual() -> None:
    with pytest.raises(ConnectionFaultError, match="table size"):
        reader().read(b"\x3f\xe1\x3f")
    with pytest.raises(ConnectionFaultError, match="table size"):
        reader().read(b"\x82\x20")


async def test_equal_heads_are_read_once(client: RawHttp2, app: Application) -> None:
    client.encoder.header_table_size = 0
    for number in range(1, 21, 2):
        client.open(number, "/echo", end=True)
        await client.answer(number)
    assert app.heads_read == 2  # the first one carries the size of the table


async def test_heads_are_shared_by_connections(server: Http2Server, app: Application) -> None:
    for _ in range(5):
        client = await RawHttp2.connect(server.port)
        client.encoder.header_table_size = 0
        for number in (1, 3, 5):
            client.open(number, "/echo", end=True)
            await client.answer(number)
        await client.close()
    assert app.heads_read == 6


@pytest.mark.parametrize("size", [0, 100])
async def test_a_client_with_a_smaller_table_is_told_that_ours_is(
    server: Http2Server, size: int
) -> None:
    """RFC 7541, 4.2: clients such as nghttp2 and h2 end the connection otherwise."""
    client = await RawHttp2.connect(server.port, {frames.HEADER_TABLE_SIZE: size})
    client.decoder.max_allowed_table_size = size
    for number in (1, 3):
        client.open(number, "/echo")
        client.data(number, b"x", end=True)
        assert (await client.answer(number)).trailers == {"end": "1"}
