"""Compressed messages both ways (GRPC-044), and what only looks like one."""

from __future__ import annotations

import gzip
import zlib
from typing import Any
from urllib.parse import unquote

import pytest

from serving.errors import InvalidArgumentError
from serving.frontends.grpc_compression import deflate, inflate
from serving.frontends.grpc_reader import MessageReader
from serving.frontends.http2.frames import window_update
from serving.options import GrpcOptions
from serving.protocol.status import GrpcStatus
from tests.serving.frontends.grpc.services import Methods, RawGrpc, framed, serving, status_of

PACK: dict[str, Any] = {"gzip": gzip.compress, "deflate": zlib.compress}
TEXT = bytes(range(256)) * 200


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("method", ["Echo", "Talk"])
@pytest.mark.parametrize("text", [TEXT[:1000], TEXT], ids=["inline", "in a thread"])
async def test_a_compressed_message_is_read(
    client: RawGrpc, encoding: str, method: str, text: bytes
) -> None:
    packed = PACK[encoding](text, 0 if text is TEXT else 9)  # level 0 keeps it large
    client.call(1, method, ("grpc-encoding", encoding))
    client.message(1, packed, is_compressed=True)
    assert (await client.answer(1)).body == framed(text)


async def test_messages_behind_one_that_inflates_wait_their_turn(client: RawGrpc) -> None:
    client.call(1, "Talk", ("grpc-encoding", "gzip"))
    client.message(1, gzip.compress(b"first"), end=False, is_compressed=True)
    client.message(1, b"second", end=False)
    client.message(1, gzip.compress(b"third"), is_compressed=True)
    answer = await client.answer(1)
    assert answer.body == framed(b"first") + framed(b"second") + framed(b"third")


@pytest.mark.parametrize("method", ["Echo", "Talk"])
@pytest.mark.parametrize(
    ("encoding", "packed", "words"),
    [
        ("identity", b"x", "no grpc-encoding"),
        ("gzip", b"nonsense", "not valid gzip"),
        ("deflate", gzip.compress(b"x"), "not valid deflate"),
        ("gzip", gzip.compress(TEXT)[:-9], "not one whole gzip stream"),
        ("gzip", gzip.compress(b"x") + b"y", "not one whole gzip stream"),
        ("gzip", gzip.compress(bytes(66 << 20), 1), "inflates to more than"),
    ],
)
async def test_a_broken_or_boundless_message_is_the_clients_fault(
    client: RawGrpc, method: str, encoding: str, packed: bytes, words: str
) -> None:
    client.call(1, method, ("grpc-encoding", encoding))
    client.message(1, packed, is_compressed=True)
    code, text = await client.status(1)
    assert code == GrpcStatus.INVALID_ARGUMENT
    assert words in unquote(text)


def test_what_inflates_is_bounded_by_what_came() -> None:
    with pytest.raises(InvalidArgumentError, match="more than 67108864 bytes"):
        inflate(zlib.compress(bytes(66 << 20), 1), "deflate")
    assert len(inflate(gzip.compress(bytes(40 << 20), 1), "gzip")) == 40 << 20


def test_an_answer_that_does_not_shrink_goes_as_it_is() -> None:
    parts: list[Any] = [b"abc"]
    assert deflate(parts, "gzip") == (parts, False)


@pytest.mark.parametrize(
    ("level", "accepted", "expected"),
    [
        (0, "identity, deflate, gzip", ""),
        (1, "identity, deflate, gzip", "gzip"),
        (2, "identity, deflate, gzip", "deflate"),
        (3, "identity,deflate,gzip", "deflate"),
        (3, "gzip", "gzip"),
        (3, "identity", ""),
        (3, "", ""),
    ],
)
@pytest.mark.parametrize("method", ["Echo", "Talk"])
async def test_answers_are_compressed_as_the_level_and_the_client_say(
    methods: Methods, level: int, accepted: str, expected: str, method: str
) -> None:
    options = GrpcOptions(response_compression_level=level)
    for text in (TEXT[:1000], TEXT * 3):
        async with serving(methods, options) as server:
            client = await RawGrpc.connect(server.port)
            assert isinstance(client, RawGrpc)
            client.call(1, method, ("grpc-accept-encoding", accepted))
            client.message(1, text[:60_000])
            answer = await client.answer(1)
        assert status_of(answer)[0] == 0
        assert dict(answer.headers).get("grpc-encoding", "") == expected
        assert answer.body[0] == bool(expected)
        body = answer.body[5:]
        if expected:
            body = inflate(body, expected)
        assert body == text[:60_000]


async def test_large_and_small_answers_of_a_stream_keep_their_order(methods: Methods) -> None:
    """Large ones are compressed in a thread meanwhile."""
    options = GrpcOptions(response_compression_level=1)
    async with serving(methods, options) as server:
        client = await RawGrpc.connect(server.port, {4: 1 << 20})
        assert isinstance(client, RawGrpc)
        client.send(window_update(0, 1 << 20))
        client.call(1, "Talk", ("grpc-accept-encoding", "gzip"))
        texts = [TEXT * 4, b"small" * 9, TEXT * 3, b"tiny", TEXT * 2]
        for text in texts:
            client.data(1, framed(text)[:20_000])
            for at in range(20_000, len(text) + 5, 16_000):
                client.data(1, framed(text)[at : at + 16_000])
        client.data(1, b"", end=True)
        answer = await client.answer(1)
    reader = MessageReader()
    reader.feed(memoryview(answer.body))
    found = [inflate(data, "gzip") if flag else bytes(data) for flag, data in reader.take()]
    assert found == texts
    assert answer.trailers == {"grpc-status": "0"}
