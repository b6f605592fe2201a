"""Opening and closing the doors together."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.frontends import start_frontends
from serving.frontends.http_server import HttpServer
from serving.frontends.malloc import tune_malloc
from serving.options import FrontendOptions, ServerOptions
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


@pytest.mark.parametrize("door", ["http_port", "grpc_port", "metrics_port"])
async def test_a_taken_port_closes_what_was_opened(
    core: ModelServer, taken_port: int, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[HttpServer] = []
    start = HttpServer.start

    async def recorded(self: HttpServer, address: str, port: int) -> None:
        await start(self, address, port)
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
