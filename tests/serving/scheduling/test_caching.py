"""The cache before a scheduler: who is answered by which of them, in which order (SCH-120..126)."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest

from serving.cache.base import CachedAnswer, Found, ResponseCache
from serving.cache.local import LocalCache
from serving.datatypes import BY_NAME
from serving.errors import BackendError, QueueRejectedError, ServingError
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.base import Scheduler
from serving.scheduling.caching import CachingScheduler
from serving.scheduling.default import DefaultScheduler
from serving.scheduling.dynamic_batcher import DynamicBatcher
from tests.fakes import FakeClock
from tests.serving.loading import spec_of
from tests.serving.scheduling.hosts import ManualHost
from tests.waiting import wait_until

FP32 = BY_NAME["FP32"]
BATCHED = """
    name: "m" max_batch_size: 8
    input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
    output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
    dynamic_batching { %s }
"""


class AskedCache(ResponseCache):
    """Answers a lookup when the test says so, as a cache elsewhere does."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bytes, Found]] = []
        self.kept: dict[bytes, CachedAnswer] = {}

    def look_up(self, key: bytes, found: Found) -> None:
        self.asked.append((key, found))

    def insert(self, key: bytes, answer: CachedAnswer) -> None:
        self.kept[key] = answer

    def answer_all(self) -> None:
        asked, self.asked = self.asked, []
        for key, found in asked:
            found(self.kept.get(key))


class Threads(Executor):
    """Runs a job when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs.append((Future(), fn, args))
        return self.jobs[-1][0]

    def run(self) -> None:
        for future, work, args in self.jobs:
            future.set_result(work(*args))


class Cached:
    """A model with one instance that executes by hand, and the cache before its scheduler."""

    def __init__(
        self,
        cache: ResponseCache | None = None,
        *,
        batching: str | None = None,
        hashing: Executor | None = None,
        salt: Any = None,
    ) -> None:
        self.clock = FakeClock()
        self.host = ManualHost()
        pool = InstancePool([self.host])
        scheduler: Scheduler = DefaultScheduler("m", pool, self.clock)
        if batching is not None:
            scheduler = DynamicBatcher(spec_of(BATCHED % batching), pool, self.clock)
        self.cache = cache or LocalCache(100_000)
        self.misses: list[int] = []
        self.scheduler = CachingScheduler(
            scheduler,
            self.cache,
            b"g" * 16,
            self.clock,
            outputs=["OUT"],
            hashing=hashing,
            on_miss=self.misses.append,
            preserves_ordering=batching is not None and "preserve_ordering" in batching,
            salt=salt,
        )
        self.answers: list[tuple[str, Any]] = []
        """(request id, value or error) in order of delivery."""

    def send(self, name: str, value: float, *, size: int = 2, **fields: Any) -> InferenceRequest:
        array = np.full((1, size), value, np.float32)
        request = InferenceRequest("m", 1, name, batch_size=1, **fields)
        request.inputs["IN"] = InputTensor("IN", FP32, array.shape, array)
        request.deliver = self._deliver
        self.scheduler.enqueue(request)
        self.clock.advance_us(0)
        return request

    def finish(self, *, error: ServingError | None = None, responses: int = 1) -> None:
        """The running batch ends; every request gets its input plus one."""
        batch, done = self.host.running, self.host.done
        assert batch is not None
        assert done is not None
        self.host.running = None
        done(batch)
        for request in batch.requests:
            for left in reversed(range(responses)):
                response = InferenceResponse("m", 1, request.id, error=error, is_final=left == 0)
                if error is None:
                    array = request.inputs["IN"].array + 1
                    response.outputs = [OutputTensor("OUT", FP32, array.shape, array)]
                assert request.deliver is not None
                request.deliver(request, response)
        self.clock.advance_us(0)

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        error = response.error
        value = float(response.outputs[0].array[0, 0]) if error is None else error.message
        self.answers.append((response.id, value))


def test_a_hit_is_answered_at_once_and_sees_no_queue():
    """SCH-126."""
    model = Cached()
    model.send("first", 1)
    model.finish()
    model.send("busy", 9)

    again = model.send("again", 1)

    assert model.answers == [("first", 2.0), ("again", 2.0)]
    assert again.times.cache_hit_ns > 0
    assert [request.id for batch in model.host.executed for request in batch.requests] == [
        "first",
        "busy",
    ]
    assert model.scheduler.queued_count == 0


def test_a_miss_is_executed_and_then_kept():
    """SCH-123."""
    model = Cached()
    model.send("a", 1)
    assert model.misses == []
    model.finish()

    assert len(model.misses) == 1
    assert model.cache.counters.entries == 1


def test_requests_with_one_key_that_come_together_are_all_executed():
    """As in Triton: nobody waits for somebody else's execution."""
    model = Cached()
    for name in "abc":
        model.send(name, 1)
    for _ in range(3):
        model.finish()

    assert len(model.host.executed) == 3
    assert model.cache.counters.entries == 1
    assert len(model.misses) == 3


def test_errors_are_not_kept():
    """SCH-124. Real Triton keeps them, and answers the next request with no outputs at all."""
    model = Cached()
    model.send("a", 1)
    model.finish(error=BackendError("boom"))
    model.send("b", 1)
    model.finish()

    assert model.answers == [("a", "boom"), ("b", 2.0)]
    assert len(model.misses) == 2


def test_an_answer_of_several_responses_is_not_kept():
    """SCH-124: decoupled."""
    model = Cached()
    model.send("a", 1)
    model.finish(responses=2)

    assert model.cache.counters.entries == 0
    assert len(model.misses) == 1


def test_requests_of_sequences_are_neither_asked_for_nor_kept():
    """SCH-124: their answers depend on what came before."""
    model = Cached()
    for name in "ab":
        model.send(name, 1, correlation_id=7)
        model.finish()

    assert len(model.host.executed) == 2
    assert model.cache.counters.hits + model.cache.counters.misses == 0
    assert model.misses == []


def test_hits_keep_the_order_of_arrival():
    """SCH-126 with SCH-034. Real Triton answers no later request of such a model at all."""
    model = Cached(batching="preserve_ordering: true")
    model.send("warm", 1)
    model.finish()
    model.answers.clear()

    model.send("slow", 5)
    model.send("hit", 1)
    model.send("later", 6)
    assert model.answers == []
    model.finish()
    assert model.answers == [("slow", 6.0), ("hit", 2.0)]
    model.finish()

    assert model.answers[-1] == ("later", 7.0)


def test_the_dynamic_batcher_batches_what_is_not_kept():
    """SCH-126."""
    model = Cached(batching="")
    model.send("warm", 1)
    model.finish()
    model.send("busy", 9)
    for name, value in (("x", 2), ("hit", 1), ("y", 3)):
        model.send(name, value)
    model.finish()

    assert [request.id for request in model.host.executed[-1].requests] == ["x", "y"]


def test_a_refused_request_keeps_its_place_in_the_order():
    """A full queue answers in turn, and nobody behind it waits for ever."""
    model = Cached(batching="preserve_ordering: true default_queue_policy { max_queue_size: 1 }")
    model.send("runs", 1)
    model.send("waits", 2)
    model.send("refused", 3)
    model.finish()
    model.finish()

    assert [name for name, _ in model.answers] == ["runs", "waits", "refused"]
    assert "Exceeds maximum queue size" in model.answers[-1][1]
    model.send("next", 1)
    assert model.answers[-1] == ("next", 2.0)


def test_what_else_an_answer_depends_on_is_part_of_the_key():
    """Of an ensemble: the models behind its steps."""
    serial = [1]
    model = Cached(salt=lambda request: b"%d" % serial[0])
    model.send("a", 1)
    model.finish()
    serial[0] = 2
    model.send("b", 1)

    assert model.host.running is not None


def test_a_lookup_elsewhere_holds_the_request_until_it_is_answered():
    cache = AskedCache()
    model = Cached(cache)
    model.send("a", 1)
    assert model.host.running is None
    assert (model.scheduler.queued_count, model.scheduler.inflight_count) == (1, 1)

    cache.answer_all()
    model.finish()
    model.send("b", 1)
    cache.answer_all()

    assert model.answers == [("a", 2.0), ("b", 2.0)]
    assert len(model.host.executed) == 1


def test_a_request_that_is_cancelled_during_the_lookup_is_answered_at_once():
    cache = AskedCache()
    model = Cached(cache)
    model.send("a", 1).cancel()
    cache.answer_all()

    ((name, message),) = model.answers
    assert name == "a"
    assert "was cancelled" in message
    assert model.host.running is None


async def test_stopping_waits_for_lookups_and_for_what_comes_of_them():
    cache = AskedCache()
    model = Cached(cache)
    model.send("a", 1)
    stopping = asyncio.ensure_future(model.scheduler.stop())
    await asyncio.sleep(0)
    with pytest.raises(QueueRejectedError, match="takes no new requests"):
        model.send("late", 1)

    cache.answer_all()
    await asyncio.sleep(0)
    assert not stopping.done()
    model.finish()
    await asyncio.wait_for(stopping, 5)

    assert model.answers == [("a", 2.0)]


async def test_abandoning_answers_those_that_look():
    cache = AskedCache()
    model = Cached(cache)
    model.send("a", 1)

    model.scheduler.abandon(QueueRejectedError("given up"))
    cache.answer_all()

    assert model.answers == [("a", "given up")]


async def test_large_inputs_are_hashed_in_a_thread():
    threads = Threads()
    model = Cached(hashing=threads)
    model.send("small", 1)
    assert model.host.running is not None
    model.finish()

    model.send("large", 1, size=1 << 17)
    assert model.host.running is None
    threads.run()
    await wait_until(lambda: model.host.running is not None)
    model.finish()
    again = model.send("again", 1, size=1 << 17)
    again.cancel()
    threads.jobs[:] = threads.jobs[1:]
    threads.run()
    await asyncio.sleep(0)

    assert [name for name, _ in model.answers] == ["small", "large", "again"]


def test_a_hit_has_the_id_of_its_own_request():
    model = Cached()
    model.send("a", 1)
    model.finish()
    model.send("", 1)

    assert model.answers[-1] == ("", 2.0)
