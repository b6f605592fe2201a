"""What only an attacker sends is refused within bounds."""

from __future__ import annotations

import asyncio
import struct

import pytest

from serving.frontends.http2 import frames
from serving.frontends.http2.frames import Code
from serving.frontends.http2.limits import Http2Limits
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.http2.raw import Application, RawHttp2, serving

CANCEL = struct.pack(">L", Code.CANCEL)
BOUNDS = Http2Limits(nuisance_burst=100, nuisance_per_s=0, reset_burst=100, resets_per_s=0)


@pytest.mark.parametrize(
    "nuisance",
    [
        frames.settings([]),
        frames.head(0, frames.SETTINGS, frames.ACK, 0),
        frames.head(5, frames.PRIORITY, 0, 1) + bytes(5),
        frames.head(0, 0xEE, 0, 0),
        frames.head(0, frames.DATA, 0, 1),
        frames.head(1, frames.DATA, frames.PADDED, 1) + b"\0",
        frames.head(1, frames.HEADERS, frames.END_HEADERS, 1) + b"\x82",
    ],
    ids=["SETTINGS", "ACK", "PRIORITY", "unknown", "empty DATA", "padding alone", "HEADERS again"],
)
async def test_frames_without_content_are_limited(nuisance: bytes) -> None:
    async with serving(BOUNDS) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        for _ in range(60):
            client.send(nuisance)
        await client.sync()
        for _ in range(60):
            client.send(nuisance)
        goaway = await client.goaway()
        assert (goaway.code, goaway.reason) == (
            Code.ENHANCE_YOUR_CALM,
            "too many frames without content",
        )


async def test_rapid_reset_is_limited_and_everything_cancelled() -> None:
    """CVE-2023-44487."""
    async with serving(BOUNDS) as server:
        client = await RawHttp2.connect(server.port)
        for number in range(1, 401, 2):
            client.open(number, "/hold", end=True)
            client.frame(frames.RST_STREAM, 0, number, CANCEL)
        goaway = await client.goaway()
        assert (goaway.code, goaway.reason) == (Code.ENHANCE_YOUR_CALM, "too many resets")
        app = server.application
        assert isinstance(app, Application)
        assert len(app.receivers) <= 102
        assert all(receiver.is_gone for receiver in app.receivers)


async def test_streams_that_wait_are_limited() -> None:
    async with serving(Http2Limits(max_concurrent_streams=3)) as server:
        client = await RawHttp2.connect(server.port)
        for number in (1, 3, 5, 7):
            client.open(number, "/hold")
        reset = await client.until(frames.RST_STREAM)
        assert (reset.stream, reset.code) == (7, Code.REFUSED_STREAM)
        client.frame(frames.RST_STREAM, 0, 1, CANCEL)
        client.open(9, "/echo", end=True)
        assert (await client.answer(9)).trailers


async def test_continuation_without_end_is_refused(client: RawHttp2) -> None:
    """CVE-2024-27316: many of them, empty or not."""
    client.frame(frames.HEADERS, 0, 1, client.block("/echo"))
    for _ in range(100):
        client.frame(frames.CONTINUATION, 0, 1)
    assert (await client.goaway()).code == Code.ENHANCE_YOUR_CALM


async def test_a_huge_header_block_is_refused(client: RawHttp2) -> None:
    client.frame(frames.HEADERS, 0, 1, bytes(60_000))
    for _ in range(5):
        client.frame(frames.CONTINUATION, 0, 1, bytes(60_000))
    assert (await client.goaway()).code == Code.ENHANCE_YOUR_CALM


async def test_an_hpack_bomb_is_refused(client: RawHttp2) -> None:
    """One entry of 4 KB in the table, and thousands of references to it."""
    value = b"x" * 3900
    entry = b"\x40\x01a\x7f" + bytes((0x80 | (len(value) - 127) & 0x7F, (len(value) - 127) >> 7))
    block = entry + value + b"\xbe" * 10_000
    client.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
    assert (await client.goaway()).code == Code.ENHANCE_YOUR_CALM


async def test_window_in_crumbs_is_limited() -> None:
    """CVE-2019-9511: a byte of window at a time makes frames of a byte."""
    async with serving(BOUNDS) as server:
        client = await RawHttp2.connect(server.port, {frames.INITIAL_WINDOW_SIZE: 0})
        client.open(1, "/bytes/100000", end=True)
        for _ in range(200):
            client.send(frames.window_update(1, 1))
        assert (await client.goaway()).code == Code.ENHANCE_YOUR_CALM


async def test_a_client_that_says_nothing_is_closed() -> None:
    async with serving(Http2Limits(preface_timeout_s=0.05)) as server:
        client = RawHttp2(*await asyncio.open_connection("127.0.0.1", server.port))
        assert (await client.goaway()).code == Code.SETTINGS_TIMEOUT


@pytest.mark.parametrize(
    "begun",
    [
        frames.head(100, frames.DATA, 0, 1) + b"a",
        frames.head(100, frames.HEADERS, 0, 3) + b"a",
        frames.head(1, frames.HEADERS, 0, 3) + b"\x82",
        frames.head(1, frames.DATA, 0, 1) + b"a",
    ],
    ids=["within DATA", "within HEADERS", "between CONTINUATIONs", "within a message"],
)
async def test_a_client_that_begins_and_falls_silent_is_given_up(begun: bytes) -> None:
    async with serving(Http2Limits(stall_timeout_s=0.05)) as server:
        client = await RawHttp2.connect(server.port)
        client.open(1, "/hold")
        client.send(begun)
        goaway = await client.goaway()
        assert (goaway.code, goaway.reason) == (
            Code.ENHANCE_YOUR_CALM,
            "a message did not go on",
        )


async def test_a_client_that_waits_for_its_answer_is_not(server: Http2Server) -> None:
    client = await RawHttp2.connect(server.port)
    client.open(1, "/hold", end=True)
    await client.sync()
    (connection,) = server.connections
    connection.last_read_s -= 1000
    connection.check_progress()
    await client.sync()
    assert connection.streams.open


async def test_a_budget_refills_with_time() -> None:
    from serving.frontends.http2.guard import Budget

    now = [0.0]
    budget = Budget(2, 1.0, lambda: now[0], "enough")
    budget.spend()
    budget.spend()
    with pytest.raises(frames.ConnectionFaultError, match="enough"):
        budget.spend()
    now[0] = 5.0
    budget.spend()
    budget.spend()
    with pytest.raises(frames.ConnectionFaultError, match="enough"):
        budget.spend()
