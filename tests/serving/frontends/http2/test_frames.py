"""What frames do to a connection: RFC 9113 on the wire."""

from __future__ import annotations

import asyncio
import struct

import pytest

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.http2.raw import Application, RawHttp2
from tests.waiting import wait_until


async def test_the_greeting_says_what_a_client_may_do(client: RawHttp2) -> None:
    first = await client.read()
    values = dict(frames.parse_settings(first.payload))

    assert (first.kind, first.flags) == (frames.SETTINGS, 0)
    assert values[frames.HEADER_TABLE_SIZE] == 0
    assert values[frames.INITIAL_WINDOW_SIZE] >= 1 << 20
    assert values[frames.MAX_FRAME_SIZE] > 602_112
    assert values[frames.MAX_CONCURRENT_STREAMS] >= 1000
    assert (await client.read()).kind == frames.WINDOW_UPDATE
    ack = await client.read()
    assert (ack.kind, ack.flags) == (frames.SETTINGS, frames.ACK)


async def test_a_request_is_answered_with_head_body_and_trailers(client: RawHttp2) -> None:
    client.open(1, "/echo")
    client.data(1, b"abc", end=True)

    answer = await client.answer(1)

    assert answer.headers == [(":status", "200")]
    assert (answer.body, answer.trailers) == (b"abc", {"end": "1"})


async def test_bytes_may_come_one_by_one(client: RawHttp2) -> None:
    wire = frames.head(3, frames.DATA, frames.END_STREAM, 1) + b"abc"
    block = client.block("/echo")
    wire = frames.head(len(block), frames.HEADERS, frames.END_HEADERS, 1) + block + wire
    for byte in wire:
        client.send(bytes((byte,)))
        await client.writer.drain()

    assert (await client.answer(1)).body == b"abc"


async def test_streams_of_one_connection_overlap(client: RawHttp2, app: Application) -> None:
    client.open(1, "/echo")
    client.open(3, "/echo")
    client.data(3, b"b", end=True)
    assert (await client.answer(3)).body == b"b"
    client.data(1, b"a", end=True)
    assert (await client.answer(1)).body == b"a"
    assert len(app.receivers) == 2


async def test_headers_go_on_in_continuation_frames(client: RawHttp2) -> None:
    block = client.block("/echo", ("long", "x" * 200))
    client.frame(frames.HEADERS, frames.END_STREAM, 1, block[:7])
    client.frame(frames.CONTINUATION, 0, 1, block[7:60])
    client.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[60:])

    assert (await client.answer(1)).headers == [(":status", "200")]


async def test_padding_and_priority_are_skipped(client: RawHttp2) -> None:
    block = client.block("/echo")
    flags = frames.END_HEADERS | frames.PADDED | frames.WITH_PRIORITY
    payload = b"\x03" + bytes(5) + block + b"\0\0\0"
    client.frame(frames.HEADERS, flags, 1, payload)
    client.frame(frames.DATA, frames.PADDED, 1, b"\x02ab\0\0")
    client.frame(frames.DATA, frames.PADDED, 1, b"\x00c")
    client.frame(frames.DATA, frames.PADDED | frames.END_STREAM, 1, b"\x01\0")

    assert (await client.answer(1)).body == b"abc"


async def test_padding_may_come_later_than_what_it_pads(client: RawHttp2) -> None:
    client.open(1, "/echo")
    wire = frames.head(8, frames.DATA, frames.PADDED | frames.END_STREAM, 1) + b"\x04abc" + bytes(4)
    wire += frames.head(8, frames.PING, 0, 0) + b"12345678"
    for byte in wire:
        client.send(bytes((byte,)))
        await client.writer.drain()

    assert (await client.answer(1)).body == b"abc"
    assert (await client.until(frames.PING)).payload == b"12345678"


async def test_priority_and_unknown_frames_and_goaway_are_ignored(client: RawHttp2) -> None:
    client.frame(frames.PRIORITY, 0, 1, bytes(5))
    client.frame(0xFA, 0xFF, 0, b"?")
    client.frame(frames.GOAWAY, 0, 0, bytes(8))
    client.open(1, "/echo", end=True)

    assert (await client.answer(1)).trailers == {"end": "1"}


async def test_a_ping_is_acknowledged(client: RawHttp2) -> None:
    client.frame(frames.PING, 0, 0, b"abcdefgh")

    pong = await client.until(frames.PING)

    assert (pong.flags, pong.payload) == (frames.ACK, b"abcdefgh")


async def test_trailers_of_a_client_end_its_request(client: RawHttp2) -> None:
    client.open(1, "/echo")
    client.data(1, b"abc")
    block = client.encoder.encode([("x", "y")])
    client.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, block)

    assert (await client.answer(1)).body == b"abc"


async def test_an_answer_before_the_end_of_the_request_resets_it_gently(client: RawHttp2) -> None:
    client.open(1, "/refuse")

    assert (await client.answer(1)).headers == [(":status", "200")]
    assert (await client.until(frames.RST_STREAM)).code == Code.NO_ERROR
    client.data(1, b"on its way", end=True)
    client.open(3, "/echo", end=True)
    assert (await client.answer(3)).trailers


async def test_a_reset_tells_the_receiver(client: RawHttp2, app: Application) -> None:
    client.open(1, "/hold")
    client.frame(frames.RST_STREAM, 0, 1, struct.pack(">L", Code.CANCEL))
    await client.sync()

    assert app.receivers[0].is_gone
    app.receivers[0].stream.reply(b"", [b"late"], b"")  # harmless


async def test_a_client_that_goes_away_tells_every_receiver(
    client: RawHttp2, app: Application
) -> None:
    client.open(1, "/hold")
    client.open(3, "/hold")
    await client.sync()
    await client.close()

    await wait_until(lambda: all(item.is_gone for item in app.receivers))


@pytest.mark.parametrize("path", ["/fail", "/broken"])
async def test_what_the_application_raises_ends_one_stream(
    client: RawHttp2, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.open(1, path)
    client.data(1, b"x", end=True)

    assert (await client.answer(1)).reset == Code.INTERNAL_ERROR
    assert "as asked" in caplog.text
    client.open(3, "/echo", end=True)
    assert (await client.answer(3)).trailers


SHORT = b"\0\0\0\1"


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frames.head(0, frames.DATA, 0, 0), Code.PROTOCOL_ERROR),
        (frames.head(0, frames.DATA, 0, 7), Code.PROTOCOL_ERROR),
        (frames.head(0, frames.HEADERS, frames.END_HEADERS, 2), Code.PROTOCOL_ERROR),
        (frames.head(0, frames.HEADERS, frames.END_HEADERS, 0), Code.PROTOCOL_ERROR),
        (frames.head(1, frames.HEADERS, 0x0C, 1) + b"\x05", Code.PROTOCOL_ERROR),
        (frames.head(2, frames.DATA, frames.PADDED, 1) + b"\x05a", Code.PROTOCOL_ERROR),
        (frames.head(0, frames.DATA, frames.PADDED, 1), Code.PROTOCOL_ERROR),
        (frames.head(0, frames.PUSH_PROMISE, 0, 1), Code.PROTOCOL_ERROR),
        (frames.head(0, frames.CONTINUATION, 0, 1), Code.PROTOCOL_ERROR),
        (frames.head(5, frames.SETTINGS, 0, 0) + bytes(5), Code.FRAME_SIZE_ERROR),
        (frames.head(6, frames.SETTINGS, frames.ACK, 0) + bytes(6), Code.FRAME_SIZE_ERROR),
        (frames.head(0, frames.SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
        (frames.settings([(frames.ENABLE_PUSH, 2)]), Code.PROTOCOL_ERROR),
        (frames.settings([(frames.MAX_FRAME_SIZE, 100)]), Code.PROTOCOL_ERROR),
        (frames.settings([(frames.MAX_FRAME_SIZE, 2**24)]), Code.PROTOCOL_ERROR),
        (frames.settings([(frames.INITIAL_WINDOW_SIZE, 2**31)]), Code.FLOW_CONTROL_ERROR),
        (frames.head(7, frames.PING, 0, 0) + bytes(7), Code.FRAME_SIZE_ERROR),
        (frames.head(8, frames.PING, 0, 1) + bytes(8), Code.PROTOCOL_ERROR),
        (frames.head(3, frames.WINDOW_UPDATE, 0, 0) + bytes(3), Code.FRAME_SIZE_ERROR),
        (frames.head(4, frames.WINDOW_UPDATE, 0, 0) + bytes(4), Code.PROTOCOL_ERROR),
        (frames.head(4, frames.WINDOW_UPDATE, 0, 9) + SHORT, Code.PROTOCOL_ERROR),
        (frames.window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        (frames.head(3, frames.RST_STREAM, 0, 1) + bytes(3), Code.FRAME_SIZE_ERROR),
        (frames.head(4, frames.RST_STREAM, 0, 9) + SHORT, Code.PROTOCOL_ERROR),
        (frames.head(4 * 2**20 + 1, frames.HEADERS, 0, 1), Code.FRAME_SIZE_ERROR),
        (frames.head(2**18 + 1, frames.HEADERS, 0, 1), Code.ENHANCE_YOUR_CALM),
        (frames.head(2**24 - 1, frames.DATA, 0, 1), Code.FRAME_SIZE_ERROR),
        (frames.head(1, frames.HEADERS, 0, 1) + b"\x82" + frames.SETTINGS_ACK, Code.PROTOCOL_ERROR),
        (frames.head(1, frames.HEADERS, 4, 1) + b"\xff", Code.COMPRESSION_ERROR),
        (frames.head(2, frames.HEADERS, 4, 1) + b"\xff\x0f", Code.COMPRESSION_ERROR),
        (frames.head(8, frames.HEADERS, 4, 1) + b"\xff" * 7 + b"\1", Code.COMPRESSION_ERROR),
        (frames.head(3, frames.HEADERS, 4, 1) + b"\x00\x05a", Code.COMPRESSION_ERROR),
        (frames.head(4, frames.HEADERS, 4, 1) + b"\x3f\xe1\x7f\x01", Code.COMPRESSION_ERROR),
    ],
)
async def test_a_broken_frame_ends_the_connection_with_its_code(
    client: RawHttp2, wire: bytes, code: Code
) -> None:
    client.send(wire)

    assert (await client.goaway()).code == code


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frames.head(4, frames.WINDOW_UPDATE, 0, 1) + bytes(4), Code.PROTOCOL_ERROR),
        (frames.window_update(1, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        (frames.head(1, frames.HEADERS, frames.END_HEADERS, 1) + b"\x88", Code.PROTOCOL_ERROR),
    ],
)
async def test_a_broken_stream_is_reset_and_the_connection_goes_on(
    client: RawHttp2, app: Application, wire: bytes, code: Code
) -> None:
    client.open(1, "/hold")
    client.send(wire)

    assert (await client.answer(1)).reset == code
    assert app.receivers[0].is_gone
    client.open(3, "/echo", end=True)
    assert (await client.answer(3)).trailers


async def test_data_after_the_end_resets_the_stream_and_is_skipped(client: RawHttp2) -> None:
    client.open(1, "/hold", end=True)
    client.data(1, b"more")
    assert (await client.answer(1)).reset == Code.STREAM_CLOSED
    client.open(3, "/echo", end=True)
    assert (await client.answer(3)).trailers


@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", frames.PREFACE + frames.head(8, 6, 0, 0) + b"8" * 8],
)
async def test_what_is_no_http2_is_told_so_and_closed(server: Http2Server, start: bytes) -> None:
    client = RawHttp2(*await asyncio.open_connection("127.0.0.1", server.port))
    client.send(start)

    assert (await client.goaway()).code == Code.PROTOCOL_ERROR
