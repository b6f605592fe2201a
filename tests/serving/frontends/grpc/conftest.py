from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.grpc.services import Methods, RawGrpc, serving


@pytest.fixture
def methods() -> Methods:
    return Methods()


@pytest.fixture
async def server(methods: Methods) -> AsyncIterator[Http2Server]:
    async with serving(methods) as started:
        yield started


@pytest.fixture(autouse=True)
async def _closed_clients() -> AsyncIterator[None]:
    yield
    for opened in RawGrpc.opened:
        await opened.close()
    RawGrpc.opened.clear()


@pytest.fixture
async def client(server: Http2Server) -> RawGrpc:
    opened = await RawGrpc.connect(server.port)
    assert isinstance(opened, RawGrpc)
    return opened
