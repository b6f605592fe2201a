"""The Redis plug-in against a real Redis: shared, and never in the way (SCH-122)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
import redis

from serving.cache.base import CachedAnswer
from serving.cache.redis import RedisStore
from serving.cache.store_cache import StoreCache
from serving.clock import LoopClock
from serving.errors import InvalidArgumentError
from tests.redis_server import RedisServer
from tests.serving.cache.answers import answer
from tests.waiting import wait_until

Make = Callable[..., StoreCache]


@pytest.fixture
async def make(redis_server: RedisServer) -> AsyncIterator[Make]:
    made: list[StoreCache] = []

    def make_cache(**settings: str) -> StoreCache:
        loop = asyncio.get_running_loop()
        store = RedisStore({"unix_socket": str(redis_server.socket), **settings})
        made.append(StoreCache("redis", store, loop, LoopClock(loop)))
        return made[-1]

    yield make_cache
    for cache in made:
        cache.close()


async def look_up(cache: StoreCache, key: bytes) -> CachedAnswer | None:
    found: asyncio.Future[CachedAnswer | None] = asyncio.get_running_loop().create_future()
    cache.look_up(key, found.set_result)
    return await asyncio.wait_for(found, 10)


def keys_of(server: RedisServer) -> list[bytes]:
    with redis.Redis.from_url(server.url) as client:
        return client.keys()


async def test_two_servers_share_the_answers(make: Make, redis_server: RedisServer):
    """SCH-122."""
    one, other = make(timeout_ms="5000"), make(timeout_ms="5000")
    assert await look_up(one, b"\x00key") is None
    one.insert(b"\x00key", answer(fill=9))
    await wait_until(lambda: keys_of(redis_server))

    found = await look_up(other, b"\x00key")

    assert found is not None
    assert found.outputs[0].array.tolist() == [9, 9, 9, 9]
    assert keys_of(redis_server) == [b"conch:answer:\x00key"]


async def test_answers_may_have_an_end(make: Make, redis_server: RedisServer):
    cache = make(ttl_secs="100")
    cache.insert(b"k", answer())
    await wait_until(lambda: keys_of(redis_server))

    with redis.Redis.from_url(redis_server.url) as client:
        assert 0 < client.ttl("conch:answer:k") <= 100


async def test_a_dead_redis_costs_misses_and_comes_back(make: Make, redis_server: RedisServer):
    cache = make(timeout_ms="2000")
    redis_server.stop()
    start = time.monotonic()
    for _ in range(100):
        assert await look_up(cache, b"k") is None
    assert time.monotonic() - start < 2
    assert not cache.counters.is_open

    redis_server.start()

    async def is_back() -> bool:
        await look_up(cache, b"k")
        return cache.counters.is_open

    while not await is_back():
        assert time.monotonic() - start < 20
        await asyncio.sleep(0.05)


async def test_a_hung_redis_costs_its_timeout_and_then_nothing(
    make: Make, redis_server: RedisServer
):
    cache = make(timeout_ms="50")
    redis_server.hang()
    try:
        waits = []
        for _ in range(50):
            start = time.monotonic()
            assert await look_up(cache, b"k") is None
            waits.append(time.monotonic() - start)
    finally:
        redis_server.go_on()

    assert sum(wait > 0.02 for wait in waits) <= 7, "five to open the breaker, and a trial or two"
    assert not cache.counters.is_open


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a host"),
        ({"host": "h", "port": "x"}, "port=x, which must be a whole number from 1 to 65535"),
        ({"host": "h", "port": "0"}, "port=0, which must be from 1 to 65535"),
        ({"host": "h", "unix_socket": "/s"}, "both host and unix_socket"),
        ({"host": "h", "tls_enabled": "maybe"}, "true or false"),
        ({"host": "h", "hots": "h"}, "no setting 'hots'; it knows host, port"),
    ],
)
def test_settings_that_cannot_be_used_are_told(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        RedisStore(settings)


def test_user_and_password_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TRITONCACHE_REDIS_USERNAME", "u")
    monkeypatch.setenv("TRITONCACHE_REDIS_PASSWORD", "p")

    store = RedisStore({"host": "h", "db": "3"})

    settings = store._client.connection_pool.connection_kwargs
    assert (settings["username"], settings["password"], settings["db"]) == ("u", "p", 3)
    assert "p" not in repr(store)
