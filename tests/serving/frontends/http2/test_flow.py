"""Windows both ways, large DATA, clients that do not read."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code
from serving.frontends.http2.limits import Http2Limits, KeepAliveLimits
from serving.frontends.http2.server import Http2Server
from serving.frontends.http2.settings import apply_settings
from serving.frontends.http2.stream import Stream
from tests.serving.frontends.http2.raw import HEAD, Application, RawHttp2, serving
from tests.waiting import wait_until

SMALL = Http2Limits(
    stream_window=100_000,
    connection_window=200_000,
    keepalive=KeepAliveLimits(max_ping_strikes=0),
)


async def test_no_more_data_is_sent_than_the_client_has_window(server: Http2Server) -> None:
    client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 10})
    client.open(1, "/bytes/25", end=True)
    assert (await client.until(frames.DATA)).payload == bytes(10)
    await client.sync()
    assert not [frame for frame in client.others if frame.kind == frames.DATA]

    client.send(frames.window_update(1, 10))
    assert (await client.until(frames.DATA)).payload == bytes(10)
    client.send(frames.window_update(1, 10))
    assert (await client.until(frames.DATA)).payload == bytes(5)
    last = await client.until(frames.HEADERS)
    assert last.flags & frames.END_STREAM


async def test_the_window_of_the_connection_is_kept_to_and_shared(server: Http2Server) -> None:
    client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 1 << 20})
    client.open(1, "/bytes/60000", end=True)
    client.open(3, "/bytes/60000", end=True)
    await client.sync()
    sent = sum(len(frame.payload) for frame in client.others if frame.kind == frames.DATA)
    assert sent == frames.DEFAULT_WINDOW

    client.send(frames.window_update(0, 1 << 20))

    while sent < 120_000:
        sent += len((await client.until(frames.DATA)).payload)


async def test_a_smaller_initial_window_makes_windows_negative(server: Http2Server) -> None:
    client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 100})
    client.open(1, "/bytes/150", end=True)
    assert len((await client.until(frames.DATA)).payload) == 100
    client.send(frames.settings([(frames.INITIAL_WINDOW_SIZE, 20)]))  # now it is 80 below 0
    client.send(frames.window_update(1, 80))
    await client.sync()
    assert not [frame for frame in client.others if frame.kind == frames.DATA]

    client.send(frames.settings([(frames.INITIAL_WINDOW_SIZE, 70)]))

    assert len((await client.until(frames.DATA)).payload) == 50


async def test_frames_are_no_larger_than_the_client_takes(server: Http2Server) -> None:
    settings = {frames.INITIAL_WINDOW_SIZE: 1 << 20, frames.MAX_FRAME_SIZE: 20_000}
    client = await RawHttp2.connect(server.port, settings)
    client.open(1, "/bytes/50000", end=True)

    sizes = [len((await client.until(frames.DATA)).payload) for _ in range(3)]

    assert sizes == [20_000, 20_000, 10_000]


async def test_a_large_body_is_received_in_place(server: Http2Server, app: Application) -> None:
    body = bytes(range(256)) * 2000
    client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 1 << 20})
    client.send(frames.window_update(0, 1 << 20))
    client.open(1, "/direct")
    client.send(frames.head(len(body), frames.DATA, frames.END_STREAM, 1) + body[:1000])
    await client.writer.drain()
    await wait_until(lambda: app.receivers and app.receivers[0].received)
    client.send(body[1000:])

    assert (await client.answer(1)).body == body
    assert app.receivers[0].in_place > 400_000


async def test_taken_data_gives_new_window() -> None:
    async with serving(SMALL) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        for _ in range(20):
            client.data(1, bytes(10_000))
            await client.sync()

        given = [frame for frame in client.others if frame.kind == frames.WINDOW_UPDATE]
        of_stream = [frame for frame in given if frame.stream == 1]
        assert sum(int.from_bytes(frame.payload) for frame in of_stream) == 200_000
        assert len(of_stream) == 4


async def test_a_paused_stream_gives_none_until_it_goes_on() -> None:
    async with serving(SMALL) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/pause")
        for _ in range(6):
            client.data(1, bytes(16_000))
        await client.sync()
        seen = [frame.stream for frame in client.others if frame.kind == frames.WINDOW_UPDATE]
        assert 1 not in seen

        server.application.receivers[0].stream.resume()  # type: ignore[attr-defined]

        update = await client.until(frames.WINDOW_UPDATE)
        assert (update.stream, int.from_bytes(update.payload)) == (1, 96_000)


async def test_what_a_paused_stream_holds_is_given_back_when_it_ends() -> None:
    async with serving(SMALL) as server:
        client = await RawHttp2.connect(server.port)
        for stream in range(1, 21, 2):
            client.open(stream, "/pause")
            for _ in range(6):
                client.data(stream, bytes(16_000))
            await client.sync()
            client.frame(frames.RST_STREAM, 0, stream, bytes(4))
        client.open(99, "/echo", end=True)
        assert (await client.answer(99)).trailers


async def test_more_data_than_the_window_of_the_stream_resets_it() -> None:
    async with serving(SMALL) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/pause")
        for _ in range(7):
            client.data(1, bytes(16_000))
        assert (await client.answer(1)).reset == Code.FLOW_CONTROL_ERROR


async def test_more_data_than_the_window_of_the_connection_ends_it() -> None:
    async with serving(SMALL) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        client.send(frames.head(200_001, frames.DATA, 0, 1))
        assert (await client.goaway()).code == Code.FLOW_CONTROL_ERROR


async def test_the_receiver_hears_when_everything_has_gone_out(
    server: Http2Server, app: Application
) -> None:
    client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 10})
    client.open(1, "/hold")
    await client.sync()
    receiver = app.receivers[0]
    receiver.stream.send_head(HEAD)
    receiver.stream.send_data([bytes(25)])
    await client.sync()
    assert (receiver.drained, receiver.stream.pending_size) == (0, 15)

    client.send(frames.window_update(1, 100))
    await client.sync()

    assert (receiver.drained, receiver.stream.pending_size) == (1, 0)


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """What waits for it is bounded: by the transport's mark, and by the calls it has open."""
    async with serving(Http2Limits(write_high_water=100_000)) as server:
        wide = {frames.INITIAL_WINDOW_SIZE: 2**31 - 1}
        client = await RawHttp2.connect(server.port, wide, limit=1)
        client.send(frames.window_update(0, 2**30))
        slow: socket.socket = client.writer.get_extra_info("socket")
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for number in range(1, 400, 2):
            client.open(number, "/bytes/500000", end=True)
        (connection,) = server.connections
        await wait_until(lambda: connection.outbox.is_paused)
        held = len(connection.streams.open)
        for number in range(401, 1200, 2):
            client.open(number, "/bytes/500000", end=True)
        for _ in range(20):
            await client.writer.drain()

        assert len(connection.streams.open) == held
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 2_000_000

        client.writer.transport.abort()
        await wait_until(lambda: not server.connections)
        assert not connection.streams.open


async def test_settings_that_contradict_themselves_cost_no_more_than_the_last(
    server: Http2Server,
) -> None:
    """A frame has room for 2730 of them, and a client may have thousands of streams."""
    client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 10})
    client.open(1, "/bytes/25", end=True)
    await client.until(frames.DATA)
    (connection,) = server.connections
    counted = _Counted(connection.streams.open.values())

    values = [(frames.INITIAL_WINDOW_SIZE, size) for size in (5, 2**31 - 1, 0, 25)]
    apply_settings(values, connection.outbox, counted)

    assert counted.rounds == 1
    assert len((await client.until(frames.DATA)).payload) == 15


class _Counted:
    def __init__(self, items: Collection[Stream]) -> None:
        self._items = items
        self.rounds = 0

    def __iter__(self) -> Iterator[Stream]:
        self.rounds += 1
        return iter(self._items)
