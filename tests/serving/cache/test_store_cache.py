"""A cache over a store that is slow, hangs or fails: it costs a miss, never a request (SCH-122)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from serving.cache import codec
from serving.cache.base import CachedAnswer
from serving.cache.store import CacheStore
from serving.cache.store_cache import StoreCache
from serving.clock import LoopClock
from tests.fakes import FakeClock
from tests.serving.cache.answers import answer
from tests.waiting import wait_until


class MemoryStore(CacheStore):
    """Blocks while `gate` is shut, raises while `error` is set."""

    thread_count = 2

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.calls = 0
        self.is_closed = False

    def get(self, key: bytes) -> bytes | None:
        self._call()
        return self.values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._call()
        self.values[key] = value

    def close(self) -> None:
        self.is_closed = True

    def _call(self) -> None:
        self.calls += 1
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error


Make = Callable[..., StoreCache]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def make(store: MemoryStore) -> AsyncIterator[Make]:
    made: list[StoreCache] = []

    def make_cache(clock: FakeClock | None = None) -> StoreCache:
        loop = asyncio.get_running_loop()
        made.append(StoreCache("test", store, loop, clock or LoopClock(loop)))
        return made[-1]

    yield make_cache
    store.gate.set()
    for cache in made:
        cache.close()


async def look_up(cache: StoreCache, key: bytes) -> CachedAnswer | None:
    found: asyncio.Future[CachedAnswer | None] = asyncio.get_running_loop().create_future()
    cache.look_up(key, found.set_result)
    return await asyncio.wait_for(found, 10)


async def test_what_was_inserted_is_found(make: Make, store: MemoryStore):
    cache = make()
    assert await look_up(cache, b"k") is None

    cache.insert(b"k", answer(fill=7))
    await wait_until(lambda: store.values)
    found = await look_up(cache, b"k")

    assert found is not None
    assert found.outputs[0].array.tolist() == [7, 7, 7, 7]
    assert (cache.counters.hits, cache.counters.misses) == (1, 1)


async def test_a_store_that_takes_too_long_is_a_miss(make: Make, store: MemoryStore):
    clock = FakeClock()
    cache = make(clock)
    store.gate.clear()
    found: list[CachedAnswer | None] = []
    cache.look_up(b"k", found.append)
    await wait_until(lambda: store.calls == 1)
    assert found == []

    clock.advance_us(100_000)

    assert found == [None]
    store.values[b"k"] = codec.encode(answer())
    store.gate.set()
    await wait_until(lambda: "lookups=0" in repr(cache))
    assert found == [None], "the late answer has nobody to go to"


async def test_a_store_that_hangs_holds_no_loop_and_no_memory(make: Make, store: MemoryStore):
    """However many lookups come meanwhile, only so many wait."""
    cache = make(FakeClock())
    store.gate.clear()
    found: list[CachedAnswer | None] = []
    for number in range(1000):
        cache.look_up(b"%d" % number, found.append)
        cache.insert(b"%d" % number, answer(1 << 20))

    assert len(found) == 1000 - 256
    assert "lookups=256" in repr(cache)


async def test_a_store_that_fails_is_a_miss_and_then_left_alone(
    make: Make, store: MemoryStore, caplog
):
    clock = FakeClock()
    cache = make(clock)
    store.error = ConnectionError("gone")
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            assert await look_up(cache, b"k") is None
        assert store.calls == 5
        assert not cache.counters.is_open
        cache.insert(b"k", answer())
        store.error = None
        store.values[b"k"] = codec.encode(answer())

        clock.advance_us(1_000_000)
        assert await look_up(cache, b"k") is not None

    assert cache.counters.is_open
    assert store.calls == 6, "an insertion into a store that is left alone is dropped"
    told = [record.message for record in caplog.records]
    assert len(told) == 2
    assert "left alone for a while" in told[0]
    assert "ConnectionError: gone" in told[0]
    assert "answers again" in told[1]


async def test_a_failed_insertion_is_no_error_of_a_request(
    make: Make, store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    """SCH-123."""
    cache = make()
    store.error = MemoryError("full")
    for number in range(3):
        cache.insert(b"k", answer())
        await wait_until(lambda number=number: cache.counters.failures == number + 1)
    store.error = None
    assert len([item for item in caplog.records if "does not keep answers" in item.message]) == 1

    assert await look_up(cache, b"k") is None


async def test_what_the_store_holds_of_others_is_a_miss(make: Make, store: MemoryStore):
    cache = make()
    store.values[b"k"] = b"not of Conch"

    assert await look_up(cache, b"k") is None
    assert cache.counters.failures == 1


async def test_closing_closes_the_store(make: Make, store: MemoryStore):
    cache = make()
    cache.close()

    await wait_until(lambda: store.is_closed)


async def test_lookups_that_wait_together_are_asked_together(make: Make, store: MemoryStore):
    """And what one of them finds spoilt is that one's trouble."""
    store.thread_count = 1
    cache = make(FakeClock())
    store.gate.clear()
    found: dict[bytes, CachedAnswer | None] = {}
    cache.look_up(b"first", lambda answer: found.update({b"first": answer}))
    await wait_until(lambda: store.calls == 1)
    store.values = {
        b"good": codec.encode(answer()),
        b"bad": b"junk",
        b"last": codec.encode(answer()),
    }
    for key in (b"good", b"bad", b"last"):
        cache.look_up(key, lambda answer, key=key: found.update({key: answer}))
    store.gate.set()
    await wait_until(lambda: len(found) == 4)

    assert found[b"good"] is not None
    assert found[b"last"] is not None
    assert found[b"bad"] is None
    assert cache.counters.failures == 1
