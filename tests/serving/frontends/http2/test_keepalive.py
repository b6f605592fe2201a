"""Keep-alive, age, and a stop that lets calls end."""

from __future__ import annotations

import asyncio

import pytest

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code
from serving.frontends.http2.limits import Http2Limits, KeepAliveLimits
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.http2.raw import Application, RawHttp2, serving
from tests.waiting import wait_until

PING = frames.ping(b"12345678")


def limits(**changes: float | None) -> Http2Limits:
    return Http2Limits(keepalive=KeepAliveLimits(**changes))  # type: ignore[arg-type]


async def test_a_silent_client_is_asked_and_given_up() -> None:
    async with serving(limits(time_s=0.03, timeout_s=0.05)) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        ping = await client.until(frames.PING)
        assert not ping.flags & frames.ACK
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.read()


async def test_a_client_that_answers_stays() -> None:
    async with serving(limits(time_s=0.02, timeout_s=0.5, max_pings_without_data=0)) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        for _ in range(4):
            ping = await client.until(frames.PING)
            client.send(frames.ping(ping.payload, is_ack=True))
        client.data(1, b"")
        await client.sync()
        assert server.connections


async def test_a_client_without_calls_is_not_asked_unless_permitted() -> None:
    async with serving(limits(time_s=0.02, timeout_s=0.02)) as server:
        client = await RawHttp2.connect(server.port)
        await client.sync()
        await asyncio.sleep(0.08)
        await client.sync()
    async with serving(limits(time_s=0.02, timeout_s=1, permit_without_calls=True)) as server:
        client = await RawHttp2.connect(server.port)
        assert not (await client.until(frames.PING)).flags & frames.ACK


async def test_no_more_pings_without_data_than_allowed() -> None:
    async with serving(limits(time_s=0.02, timeout_s=5, max_pings_without_data=2)) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        for _ in range(2):
            ping = await client.until(frames.PING)
            client.send(frames.ping(ping.payload, is_ack=True))
        await asyncio.sleep(0.1)
        await client.sync()
        assert not [frame for frame in client.others if frame.kind == frames.PING]


async def test_a_client_that_asks_too_often_is_told_so() -> None:
    """A third early ping is one too many (max_ping_strikes 2)."""
    async with serving() as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        client.send(PING * 3)
        await client.until(frames.PING)
        client.send(PING)
        goaway = await client.goaway()
        assert (goaway.code, goaway.reason) == (Code.ENHANCE_YOUR_CALM, "too_many_pings")


async def test_pings_between_answers_are_never_too_many(client: RawHttp2) -> None:
    for number in range(1, 41, 2):
        client.open(number, "/echo", end=True)
        await client.answer(number)
        client.send(PING)
        await client.until(frames.PING)


async def test_without_calls_only_the_longest_interval_is_allowed() -> None:
    short = {"min_recv_ping_interval_s": 0.0}
    async with serving(limits(**short)) as server:
        client = await RawHttp2.connect(server.port)
        client.send(PING * 6)
        assert (await client.goaway()).reason == "too_many_pings"
    async with serving(limits(**short, permit_without_calls=True)) as server:
        client = await RawHttp2.connect(server.port)
        client.send(PING * 6)
        await client.sync()


async def test_pings_without_limit_are_limited_as_frames_without_content() -> None:
    free = Http2Limits(
        nuisance_burst=50, nuisance_per_s=0, keepalive=KeepAliveLimits(max_ping_strikes=0)
    )
    async with serving(free) as server:
        client = await RawHttp2.connect(server.port)
        client.send(PING * 100)
        assert (await client.goaway()).code == Code.ENHANCE_YOUR_CALM


async def test_a_connection_of_age_is_drained() -> None:
    async with serving(limits(max_connection_age_s=0.02)) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        goaway = await client.until(frames.GOAWAY)
        assert (goaway.code, goaway.reason) == (Code.NO_ERROR, "max_age")
        assert int.from_bytes(goaway.payload[:4]) == 2**31 - 1
        client.open(3, "/echo", end=True)  # it was on its way
        assert (await client.answer(3)).trailers
        ping = next(frame for frame in client.others if frame.kind == frames.PING)
        client.send(frames.ping(ping.payload, is_ack=True))
        assert int.from_bytes((await client.until(frames.GOAWAY)).payload[:4]) == 3
        client.open(5, "/echo", end=True)
        assert (await client.until(frames.RST_STREAM)).code == Code.REFUSED_STREAM
        client.data(1, b"", end=True)
        app = server.application
        assert isinstance(app, Application)
        app.receivers[0].stream.end(b"\x88")
        await wait_until(lambda: not server.connections)


async def test_calls_of_a_connection_of_age_have_a_grace() -> None:
    old = limits(max_connection_age_s=0.02, max_connection_age_grace_s=0.02)
    async with serving(old) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        await client.sync()
        await wait_until(lambda: not server.connections)


async def test_a_client_that_does_not_confirm_the_end_is_drained_nevertheless() -> None:
    old = Http2Limits(drain_timeout_s=0.02, keepalive=KeepAliveLimits(max_connection_age_s=0.02))
    async with serving(old) as server:
        client = await RawHttp2.connect(server.port)
        await client.sync()
        await wait_until(lambda: not server.connections)
        assert (await client.goaway()).code == Code.NO_ERROR


async def test_a_stop_waits_for_calls_in_progress(server: Http2Server, app: Application) -> None:
    client = await RawHttp2.connect(server.port)
    client.open(1, "/hold")
    await client.sync()

    stopping = asyncio.ensure_future(server.stop(5))
    assert (await client.until(frames.GOAWAY)).code == Code.NO_ERROR
    ping = await client.until(frames.PING)
    client.send(frames.ping(ping.payload, is_ack=True))
    await client.until(frames.GOAWAY)
    app.receivers[0].stream.reply(b"\x88", [b"done"], b"\x88")

    assert (await client.answer(1)).body == b"done"
    await asyncio.wait_for(stopping, 2)
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_stop_ends_what_takes_longer_than_its_grace(
    server: Http2Server, app: Application
) -> None:
    client = await RawHttp2.connect(server.port)
    client.open(1, "/hold")
    await client.sync()

    await asyncio.wait_for(server.stop(0.02), 2)

    await wait_until(lambda: app.receivers[0].is_gone)
