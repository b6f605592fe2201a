"""Random traffic over models that share resources: nothing is overdrawn, nobody is forgotten."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from serving.config.scheduling import RateLimit, Resource
from serving.datatypes import BY_NAME
from serving.instance.pool import InstancePool
from serving.instance.turns import Turns
from serving.rate_limiter import RateLimiter
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse
from serving.scheduling.base import Scheduler
from serving.scheduling.default import DefaultScheduler
from serving.scheduling.dynamic_batcher import DynamicBatcher
from serving.scheduling.sequence.scheduler import SequenceBatcher
from tests.fakes import FakeClock
from tests.serving.loading import config_of, spec_of
from tests.serving.scheduling.hosts import ManualHost

BATCHING = (
    "",
    "max_queue_delay_microseconds: 300 preferred_batch_size: 4",
    "preserve_ordering: true",
    "default_queue_policy { default_timeout_microseconds: 500 }",
)


class Traffic:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        limits = {("r", None): 4} if seed % 2 else {}
        self.limiter = RateLimiter(self.clock, limits)
        self.hosts: list[ManualHost] = []
        self.open: set[InferenceRequest] = set()
        self.ids = itertools.count(1)
        self.schedulers = [self._model(f"m{number}") for number in range(5)]

    def _model(self, name: str) -> Scheduler:
        pick = self.random
        hosts = [ManualHost(f"{name}_{number}") for number in range(pick.randint(1, 3))]
        self.hosts += hosts
        pool = InstancePool(hosts, turns=Turns(self.limiter))
        for number, host in enumerate(hosts):
            resources = (
                Resource("r", False, pick.randint(0, 4)),
                Resource("g", True, pick.randint(0, 2)),
            )
            limit = RateLimit(resources, pick.randint(1, 3))
            claim = self.limiter.join(config_of(f'name: "{name}"'), host.name, limit, number % 2)
            pool.limit(host, claim)
        tensors = 'input { name: "IN" data_type: TYPE_FP32 dims: [-1] }'
        head = f'name: "{name}" max_batch_size: 4 {tensors}'
        kind = pick.choice(("default", "dynamic", "dynamic", "direct {}", "oldest {}"))
        if kind == "default":
            return DefaultScheduler(name, pool, self.clock)
        if kind == "dynamic":
            spec = spec_of(f"{head} dynamic_batching {{ {pick.choice(BATCHING)} }}")
            return DynamicBatcher(spec, pool, self.clock)
        return SequenceBatcher(spec_of(f"{head} sequence_batching {{ {kind} }}"), pool, self.clock)

    def send(self) -> None:
        array = np.zeros((1, 2), np.float32)
        request = InferenceRequest("m", 1, "r", batch_size=1, correlation_id=next(self.ids))
        request.sequence_start = request.sequence_end = True
        request.inputs["IN"] = InputTensor("IN", BY_NAME["FP32"], array.shape, array)
        request.deliver = self._deliver
        self.open.add(request)
        self.random.choice(self.schedulers).enqueue(request)

    def finish(self) -> None:
        busy = [host for host in self.hosts if host.running]
        if busy:
            self.random.choice(busy).finish()

    def cancel(self) -> None:
        if self.open:
            self.random.choice(sorted(self.open, key=id)).cancel()

    def step(self) -> None:
        act = self.random.choices([self.send, self.finish, self.cancel], [5, 5, 1])[0]
        act()
        self.clock.advance_us(self.random.choice((0, 0, 0, 50, 400)))
        assert all(item.used <= item.capacity for item in self.limiter.resources())

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        self.open.discard(request)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_overdrawn_and_nobody_is_forgotten(seed: int):
    """SCH-111."""
    traffic = Traffic(seed)
    for _ in range(400):
        traffic.step()
    left = len(traffic.open)
    for _ in range(2 * left + 10):
        traffic.clock.advance_us(1000)
        if not any(host.running for host in traffic.hosts):
            break
        traffic.finish()

    assert not traffic.open
    assert not any(item.used for item in traffic.limiter.resources())
    assert "waiting=0" in repr(traffic.limiter)
