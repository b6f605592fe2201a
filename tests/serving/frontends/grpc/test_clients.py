"""Real clients: grpcio, sync and asyncio, against the server in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from serving.frontends.http2.limits import Http2Limits, KeepAliveLimits
from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.grpc.services import Methods, serving
from tests.waiting import wait_until

BIG = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture
async def channel(server: Http2Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=BIG) as opened:
        yield opened


def _channel(server: Http2Server) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")


def method(channel: Any, name: str) -> Any:
    return channel.unary_unary(f"/t/{name}", None, None)


def talk(channel: Any, *messages: bytes) -> Any:
    return channel.stream_stream("/t/Talk", None, None)(iter(messages))


@pytest.mark.parametrize("size", [0, 1, 1000, 65_536, 600_000, 50 << 20])
async def test_messages_of_all_sizes_go_both_ways(channel: grpc.aio.Channel, size: int) -> None:
    text = bytes(1 << 20) * (size >> 20) + b"x" * (size & 0xFFFFF)
    assert await method(channel, "Echo")(text) == text


async def test_a_thousand_calls_at_once(channel: grpc.aio.Channel, server: Http2Server) -> None:
    texts = [b"%d" % number for number in range(1000)]
    assert await asyncio.gather(*map(method(channel, "Echo"), texts)) == texts
    (connection,) = server.connections
    assert not connection.streams.open


async def test_a_thousand_streams_at_once_leave_nothing(
    channel: grpc.aio.Channel, server: Http2Server, methods: Methods
) -> None:
    async def one(number: int) -> list[bytes]:
        return [data async for data in talk(channel, b"%d" % number, b"x" * 1000)]

    for count in (50, 1000):
        answers = await asyncio.gather(*map(one, range(count)))
        assert answers == [[b"%d" % number, b"x" * 1000] for number in range(count)]
        (connection,) = server.connections
        assert not connection.streams.open
        assert connection.outbox.is_empty
        assert not connection.outbox.has_waiting
        assert connection.streams._owed < connection.limits.connection_window // 2
    assert methods.cancelled == []


async def test_a_stream_of_many_messages_keeps_their_order(channel: grpc.aio.Channel) -> None:
    messages = [b"%d" % number * 50 for number in range(3000)]
    assert [data async for data in talk(channel, *messages)] == messages


async def test_a_stream_of_large_messages(channel: grpc.aio.Channel) -> None:
    messages = [bytes((number,)) * 3_000_000 for number in range(8)]
    assert [data async for data in talk(channel, *messages)] == messages


async def test_a_cancelled_call_is_cancelled_here(
    channel: grpc.aio.Channel, methods: Methods
) -> None:
    call = method(channel, "Hold")(b"x")
    await wait_until(lambda: methods.held)
    call.cancel()
    await wait_until(lambda: methods.cancelled == ["Hold"])


async def test_a_deadline_of_the_client_holds_here_too(
    channel: grpc.aio.Channel, methods: Methods
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await method(channel, "Hold")(b"x", timeout=0.1)
    assert told.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await wait_until(lambda: methods.cancelled == ["Hold"])


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compression_of_a_client(
    channel: grpc.aio.Channel, compression: grpc.Compression
) -> None:
    text = b"tensor" * 50_000
    assert await method(channel, "Echo")(text, compression=compression) == text


async def test_errors_and_metadata(channel: grpc.aio.Channel, methods: Methods) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await method(channel, "Fail")("50 % größer".encode())
    assert told.value.code() is grpc.StatusCode.NOT_FOUND
    assert told.value.details() == "50 % größer"
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await method(channel, "Fail")(b"x" * 20_000)
    assert (told.value.details() or "").endswith("... (cut)")
    await method(channel, "Echo")(b"", metadata=(("key", "value"), ("key-bin", b"\0\1")))
    metadata = methods.heads[0].metadata
    assert ("key", "value") in metadata
    assert ("key-bin", b"\0\1") in metadata


def test_a_client_of_threads_calls_too() -> None:
    methods = Methods()

    async def serve(port: asyncio.Future[int], done: asyncio.Event) -> None:
        async with serving(methods) as server:
            port.set_result(server.port)
            await done.wait()

    def use(port: int) -> list[bytes]:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=BIG) as channel:
            found = [method(channel, "Echo")(b"a")]
            found += [item.result() for item in [method(channel, "Echo").future(b"b")] * 3]
            found += list(talk(channel, b"c", b"d"))
        return found

    async def run() -> list[bytes]:
        loop = asyncio.get_running_loop()
        port, done = loop.create_future(), asyncio.Event()
        serving_task = asyncio.ensure_future(serve(port, done))
        found = await loop.run_in_executor(None, use, await port)
        done.set()
        await serving_task
        return found

    assert asyncio.run(run()) == [b"a", b"b", b"b", b"b", b"c", b"d"]


def test_serving_loads_no_grpc_library() -> None:
    program = "import sys, serving.standalone; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_a_stop_lets_calls_end_and_clients_know(methods: Methods) -> None:
    async with serving(methods) as server, _channel(server) as channel:
        call = method(channel, "Hold")(b"x")
        await wait_until(lambda: methods.held)
        stopping = asyncio.ensure_future(server.stop(5))
        await wait_until(lambda: next(iter(server.connections)).is_final)
        methods.held[0].reply([b"done"])
        assert await call == b"done"
        await asyncio.wait_for(stopping, 2)
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await method(channel, "Echo")(b"x")
        assert told.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_moves_on_from_a_connection_of_age(methods: Methods) -> None:
    """GRPC-045: no call is lost."""
    old = Http2Limits(keepalive=KeepAliveLimits(max_connection_age_s=0.05))
    async with serving(methods, limits=old) as server, _channel(server) as channel:
        seen = set()
        for number in range(200):
            seen |= {id(connection) for connection in server.connections}
            assert await method(channel, "Echo")(b"%d" % number) == b"%d" % number
            await asyncio.sleep(0.001)
        assert len(seen) > 1


async def test_keepalive_pings_of_a_client_are_answered(methods: Methods) -> None:
    options = [("grpc.keepalive_time_ms", 20), ("grpc.keepalive_timeout_ms", 100)]
    kind = KeepAliveLimits(min_recv_ping_interval_s=0)
    async with serving(methods, limits=Http2Limits(keepalive=kind)) as server:
        address = f"127.0.0.1:{server.port}"
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            call = method(channel, "Hold")(b"x")
            await wait_until(lambda: methods.held)
            await asyncio.sleep(0.2)
            methods.held[0].reply([b"still there"])
            assert await call == b"still there"


@pytest.mark.parametrize("size", [16_500, 70_000, 200_000])
async def test_metadata_that_is_too_large_costs_no_other_call(
    channel: grpc.aio.Channel, methods: Methods, size: int
) -> None:
    """Clients of grpc send all of it in one frame, of any size that we take; as in Triton."""
    waiting = method(channel, "Hold")(b"")
    await wait_until(lambda: methods.held)

    with pytest.raises(grpc.aio.AioRpcError, match="metadata size exceeds limit") as told:
        await method(channel, "Echo")(b"", metadata=(("key", "v" * size),))

    assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    methods.held[0].reply([b"done"])
    assert await waiting == b"done"
