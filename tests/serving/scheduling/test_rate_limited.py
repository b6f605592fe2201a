"""Schedulers whose instances need resources: all of them start through the pool (SCH-111)."""

from __future__ import annotations

import asyncio

import numpy as np

from serving.config.scheduling import RateLimit, Resource
from serving.datatypes import BY_NAME
from serving.instance.base import Batch
from serving.instance.pool import InstancePool
from serving.instance.turns import Turns
from serving.rate_limiter import RateLimiter
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse
from serving.scheduling.base import Scheduler
from serving.scheduling.default import DefaultScheduler
from serving.scheduling.dynamic_batcher import DynamicBatcher
from tests.fakes import FakeClock
from tests.serving.loading import config_of, spec_of
from tests.serving.scheduling.hosts import ManualHost

BATCHED = 'name: "m" max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: [-1] }'


class Machine:
    """Models that share resources."""

    def __init__(self, limits: dict[tuple[str, int | None], int] | None = None) -> None:
        self.clock = FakeClock()
        self.limiter = RateLimiter(self.clock, limits)
        self.answered: list[str] = []

    def pool(self, name: str, *, hosts: int = 1, count: int = 1, priority: int = 1) -> InstancePool:
        made = [ManualHost(f"{name}_{number}") for number in range(hosts)]
        pool = InstancePool(made, turns=Turns(self.limiter))
        limit = RateLimit((Resource("r", False, count),), priority)
        for host in made:
            pool.limit(host, self.limiter.join(config_of(f'name: "{name}"'), host.name, limit, 0))
        return pool

    def send(self, scheduler: Scheduler, *ids: str) -> None:
        for name in ids:
            array = np.zeros((1, 2), np.float32)
            request = InferenceRequest("m", 1, name, batch_size=1)
            request.inputs["IN"] = InputTensor("IN", BY_NAME["FP32"], array.shape, array)
            request.deliver = self._deliver
            scheduler.enqueue(request)
        self.turn()

    def turn(self) -> None:
        self.clock.advance_us(0)

    def finish(self, host: ManualHost) -> None:
        host.finish()
        self.turn()

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        self.answered.append(request.id if response.error is None else response.error.message)


def hosts_of(pool: InstancePool) -> list[ManualHost]:
    return [host for host in pool.hosts if isinstance(host, ManualHost)]


def ids(batch: Batch | None) -> str:
    return " ".join(request.id for request in batch.requests) if batch else ""


def test_models_take_turns_under_the_default_scheduler():
    """SCH-111, SCH-113 across models."""
    machine = Machine()
    pools = [machine.pool("a"), machine.pool("b")]
    first, second = (DefaultScheduler("m", pool, machine.clock) for pool in pools)
    a, b = (hosts_of(pool)[0] for pool in pools)

    machine.send(first, "a1", "a2", "a3")
    machine.send(second, "b1", "b2")
    assert (ids(a.running), ids(b.running)) == ("a1", "")

    order = []
    while a.running or b.running:
        assert not (a.running and b.running)
        running = a if a.running else b
        order.append(ids(running.running))
        machine.finish(running)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


def test_a_batch_grows_while_it_waits_for_resources():
    machine = Machine()
    owner, pool = machine.pool("a"), machine.pool("b")
    other = DefaultScheduler("m", owner, machine.clock)
    batcher = DynamicBatcher(spec_of(BATCHED + " dynamic_batching {}"), pool, machine.clock)
    machine.send(other, "a1")
    machine.send(batcher, "b1")
    machine.send(batcher, "b2", "b3")
    assert hosts_of(pool)[0].running is None
    assert pool.turns is not None
    assert pool.turns.waiting_count == 1

    machine.finish(hosts_of(owner)[0])

    assert ids(hosts_of(pool)[0].running) == "b1 b2 b3"
    assert pool.turns.waiting_count == 0


def test_a_request_that_expires_while_it_waits_lets_the_turn_pass():
    machine = Machine()
    owner, pool, last = machine.pool("a"), machine.pool("b"), machine.pool("c")
    schedulers = [DefaultScheduler("m", item, machine.clock) for item in (owner, last)]
    timed = spec_of(
        BATCHED + " dynamic_batching { default_queue_policy { default_timeout_microseconds: 100 } }"
    )
    machine.send(schedulers[0], "a1")
    machine.send(DynamicBatcher(timed, pool, machine.clock), "b1")
    machine.send(schedulers[1], "c1")
    machine.clock.advance_us(200)
    assert "timeout expired" in machine.answered[0]

    machine.finish(hosts_of(owner)[0])

    assert ids(hosts_of(last)[0].running) == "c1"


def test_the_instance_with_the_fewest_turns_is_next():
    """SCH-113."""
    machine = Machine({("r", None): 1})
    pool = machine.pool("a", hosts=2)
    scheduler = DefaultScheduler("m", pool, machine.clock)
    one, two = hosts_of(pool)
    machine.send(scheduler, "1", "2", "3")

    executed = []
    while one.running or two.running:
        host = one if one.running else two
        executed.append(host.name)
        machine.finish(host)

    assert executed == ["a_0", "a_1", "a_0"]


def test_who_needs_one_instance_in_particular_is_woken_for_it():
    """As sequences of the direct strategy do."""
    machine = Machine()
    owner, pool = machine.pool("a"), machine.pool("b")
    scheduler = DefaultScheduler("m", owner, machine.clock)
    machine.send(scheduler, "a1")
    (host,) = hosts_of(pool)
    taken = []
    pool.on_idle = lambda: taken.append(pool.take(host))

    assert not pool.can_take(host)
    machine.finish(hosts_of(owner)[0])

    assert taken == [True]
    machine.send(scheduler, "a2")
    assert hosts_of(owner)[0].running is None
    pool.release(host)
    machine.turn()
    assert ids(hosts_of(owner)[0].running) == "a2"


async def test_a_stopped_pool_gives_everything_back():
    machine = Machine()
    owner, pool = machine.pool("a"), machine.pool("b")
    assert owner.acquire() is not None
    machine.send(DefaultScheduler("m", pool, machine.clock), "b1")

    await owner.stop()
    machine.turn()

    assert ids(hosts_of(pool)[0].running) == "b1"


def test_a_removed_instance_gives_its_resources_back_when_it_has_finished():
    """REP-090 with SCH-111."""
    machine = Machine({("r", None): 1})
    pool, other = machine.pool("a"), machine.pool("b")
    scheduler = DefaultScheduler("m", pool, machine.clock)
    (host,) = hosts_of(pool)
    machine.send(scheduler, "a1")
    machine.send(DefaultScheduler("m", other, machine.clock), "b1")

    async def run() -> bool:
        finished = pool.remove(host)
        assert not finished.done()
        machine.finish(host)
        return finished.done()

    assert asyncio.run(run())
    assert ids(hosts_of(other)[0].running) == "b1"
