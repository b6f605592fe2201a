"""Opening and closing the doors together."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving.frontends import start_frontends
from serving.frontends.http_server import HttpServer
from serving.frontends.malloc import tune_malloc
from serving.options import FrontendOptions, GrpcOptions, ServerOptions
from serving.restrictions import parse
from serving.server import ModelServer
from tests.serving.frontends.raw_http import RawClient


@pytest.fixture
def core(tmp_path: Path) -> ModelServer:
    return ModelServer(ServerOptions((tmp_path,)))


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


async def test_all_doors_open_on_free_ports(core: ModelServer) -> None:
    options = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)

    frontends = await start_frontends(core, options)

    assert len({frontends.http_port, frontends.grpc_port, frontends.metrics_port} - {0}) == 3
    await frontends.stop()
    with pytest.raises(ConnectionError):
        await RawClient.connect(frontends.http_port)


async def test_a_server_that_has_not_started_is_live_and_not_ready(core: ModelServer) -> None:
    options = FrontendOptions(http_port=0, allow_grpc=False, allow_metrics=False)
    frontends = await start_frontends(core, options)
    client = await RawClient.connect(frontends.http_port)

    live = await client.request("GET", "/v2/health/live")
    ready = await client.request("GET", "/v2/health/ready")
    load = await client.request("POST", "/v2/repository/models/m/load")

    assert (live.status, ready.status, load.status) == (200, 400, 503)
    await client.close()
    await frontends.stop()


async def test_closed_doors_have_port_0(core: ModelServer) -> None:
    options = FrontendOptions(allow_http=False, allow_grpc=False, allow_metrics=False)

    frontends = await start_frontends(core, options)

    assert (frontends.http_port, frontends.grpc_port, frontends.metrics_port) == (0, 0, 0)
    await frontends.stop()


async def test_tool_064_the_port_of_openai_has_metrics_and_health_too(core: ModelServer) -> None:
    options = FrontendOptions(
        openai_port=0,
        allow_openai=False,
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
        http_restricted=(parse("inference:x-key=value"),),
    )
    frontends = await start_frontends(core, options)
    client = await RawClient.connect(frontends.openai_port)

    async def status(method: str, path: str) -> int:
        return (await client.request(method, path)).status

    assert await status("GET", "/health/ready") == 400
    await core.start()
    assert await status("GET", "/health/ready") == 200
    assert await status("POST", "/health/ready") == 405
    assert (await client.request("GET", "/v1/models")).json["object"] == "list"
    assert await status("POST", "/v1/completions") == 401
    assert b"nv_pinned_memory_pool" in (await client.request("GET", "/metrics")).body
    missing = await client.request("GET", "/v2/health/live")
    assert (missing.status, missing.json["error"]["code"]) == (404, "unknown_url")
    await client.close()
    await frontends.stop()
    await core.stop()


@pytest.mark.parametrize("is_shared", [True, False])
async def test_cli_050_servers_share_a_port_where_both_say_so(
    core: ModelServer, is_shared: bool
) -> None:
    """--reuse-http-port and --reuse-grpc-port (GRPC-040)."""
    sharing = GrpcOptions(reuse_port=True)
    options = FrontendOptions(
        http_port=0, grpc_port=0, allow_metrics=False, http_reuse_port=True, grpc=sharing
    )
    first = await start_frontends(core, options)
    beside = replace(
        options,
        http_port=first.http_port,
        grpc_port=first.grpc_port,
        http_reuse_port=is_shared,
    )
    if is_shared:
        second = await start_frontends(core, beside)
        assert (second.http_port, second.grpc_port) == (first.http_port, first.grpc_port)
        await first.stop()
        client = await RawClient.connect(second.http_port)  # who is left answers
        assert (await client.request("GET", "/v2/health/live")).status == 200
        await client.close()
        await second.stop()
        return
    with pytest.raises(OSError, match="in use"):
        await start_frontends(core, beside)
    alone = replace(beside, http_port=0, grpc=GrpcOptions())
    with pytest.raises(OSError, match=str(first.grpc_port)):
        await start_frontends(core, alone)
    await first.stop()


@pytest.mark.parametrize("door", ["http_port", "grpc_port", "metrics_port", "openai_port"])
async def test_a_taken_port_closes_what_was_opened(
    core: ModelServer, taken_port: int, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[HttpServer] = []
    start = HttpServer.start

    async def recorded(self: HttpServer, address: str, port: int, **options: bool) -> None:
        await start(self, address, port, **options)
        opened.append(self)

    monkeypatch.setattr(HttpServer, "start", recorded)
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0} | {door: taken_port}

    with pytest.raises(OSError, match=str(taken_port)):
        await start_frontends(core, FrontendOptions(**ports))

    for server in opened:
        with pytest.raises(ConnectionError):
            await RawClient.connect(server.port)


def test_the_allocator_is_tuned_once_and_by_the_environment_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune_malloc.cache_clear()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")

    assert not tune_malloc()

    tune_malloc.cache_clear()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    assert tune_malloc() is tune_malloc()
