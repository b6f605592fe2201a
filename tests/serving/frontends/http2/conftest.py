from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from serving.frontends.http2.server import Http2Server
from tests.serving.frontends.http2.raw import Application, RawHttp2, serving


@pytest.fixture
async def server() -> AsyncIterator[Http2Server]:
    async with serving() as started:
        yield started


@pytest.fixture
def app(server: Http2Server) -> Application:
    assert isinstance(server.application, Application)
    return server.application


@pytest.fixture(autouse=True)
async def _closed_clients() -> AsyncIterator[None]:
    yield
    for opened in RawHttp2.opened:
        await opened.close()
    RawHttp2.opened.clear()


@pytest.fixture
async def client(server: Http2Server) -> RawHttp2:
    return await RawHttp2.connect(server.port)
