"""Streams that wait hold up no others; clients that take nothing do not stay for ever."""

from __future__ import annotations

import socket
import struct

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code
from serving.frontends.http2.limits import Http2Limits, KeepAliveLimits
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.http2.raw import Application, RawHttp2, serving
from tests.waiting import wait_until

WIDE = {frames.INITIAL_WINDOW_SIZE: 2**31 - 1}
CANCEL = struct.pack(">L", Code.CANCEL)


async def test_streams_that_are_paused_leave_the_others_their_window() -> None:
    small = Http2Limits(
        stream_window=100_000,
        connection_window=200_000,
        keepalive=KeepAliveLimits(max_ping_strikes=0),
    )
    async with serving(small) as server:
        client = await RawHttp2.connect(server.port)
        for number in (1, 3, 5, 7):
            client.open(number, "/pause")
            for _ in range(6):
                client.data(number, bytes(16_000))
            await client.sync()
        client.open(9, "/echo")
        client.data(9, bytes(16_000), end=True)

        assert len((await client.answer(9)).body) == 16_000
        given = [frame for frame in client.others if frame.kind == frames.WINDOW_UPDATE]
        assert {frame.stream for frame in given} == {0}


async def test_a_message_that_waits_for_our_window_is_not_silence(
    server: Http2Server, app: Application
) -> None:
    client = await RawHttp2.connect(server.port)
    client.open(1, "/hold")
    client.data(1, b"half a message")
    await client.sync()
    stream = app.receivers[0].stream
    assert app.receivers[0].is_incomplete
    (connection,) = server.connections

    stream.pause()
    connection.last_read_s -= 1000
    connection.check_progress()
    stream.resume()
    connection.check_progress()  # it had no time to go on yet

    await client.sync()
    connection.last_read_s -= 1000
    connection.check_progress()
    assert (await client.goaway()).reason == "a message did not go on"


async def _deaf(server: Http2Server) -> RawHttp2:
    """A client that has asked for much and reads none of it."""
    client = await RawHttp2.connect(server.port, WIDE, limit=1)
    slow: socket.socket = client.writer.get_extra_info("socket")
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.send(frames.window_update(0, 2**30))
    for number in range(1, 40, 2):
        client.open(number, "/bytes/500000", end=True)
    await client.writer.drain()
    (connection,) = server.connections
    await wait_until(lambda: connection.outbox.is_paused)
    return client


async def test_a_deaf_client_that_broke_the_protocol_is_let_go() -> None:
    async with serving(Http2Limits(write_high_water=8_000_000, preface_timeout_s=60)) as server:
        client = await RawHttp2.connect(server.port, WIDE, limit=1)
        slow: socket.socket = client.writer.get_extra_info("socket")
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(frames.window_update(0, 2**30))
        for number in range(1, 30, 2):
            client.open(number, "/bytes/500000", end=True)
        client.frame(frames.PUSH_PROMISE, 0, 1, bytes(4))

        await wait_until(lambda: not server.connections)


async def test_a_deaf_client_of_age_is_let_go() -> None:
    async with serving(Http2Limits(write_high_water=100_000, drain_timeout_s=0.05)) as server:
        client = await _deaf(server)
        for number in range(1, 40, 2):
            client.frame(frames.RST_STREAM, 0, number, CANCEL)
        (connection,) = server.connections
        connection.streams.abandon()
        connection.drain("max_age")

        await wait_until(lambda: not server.connections)


async def test_a_client_may_take_back_thousands_of_calls(server: Http2Server) -> None:
    """As one does whose deadlines pass while the models are busy."""
    client = await RawHttp2.connect(server.port)
    for number in range(1, 10_001, 2):
        client.open(number, "/hold", end=True)
        client.frame(frames.RST_STREAM, 0, number, CANCEL)
    client.open(10_001, "/echo", end=True)
    assert (await client.answer(10_001)).trailers


async def test_streams_taken_back_leave_the_queue_of_a_client_without_window(
    server: Http2Server,
) -> None:
    client = await RawHttp2.connect(server.port, WIDE)
    client.open(1, "/bytes/70000", end=True)  # takes all that the connection may send
    await client.sync()
    (connection,) = server.connections
    for number in range(3, 6_003, 2):
        client.open(number, "/bytes/1000", end=True)
        client.frame(frames.RST_STREAM, 0, number, CANCEL)
    await client.sync()

    assert len(connection.streams.open) == 1
    assert len(connection.outbox._queue) <= 1025

    client.send(frames.window_update(0, 1 << 20))
    answer = await client.answer(1)
    assert answer.trailers


async def test_settings_cost_more_where_streams_are_many() -> None:
    bounds = Http2Limits(nuisance_burst=100, nuisance_per_s=0)
    async with serving(bounds) as server:
        client = await RawHttp2.connect(server.port)
        for number in range(1, 2_001, 2):
            client.open(number, "/hold", end=True)
        for size in range(25):
            client.send(frames.settings([(frames.INITIAL_WINDOW_SIZE, size)]))
        assert (await client.goaway()).code == Code.ENHANCE_YOUR_CALM
