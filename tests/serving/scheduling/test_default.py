"""The default scheduler: one request, one execution. Spec SCH-020..022."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serving.errors import QueueRejectedError
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest
from serving.scheduling.default import DefaultScheduler
from tests.fakes import FakeClock
from tests.serving.scheduling.hosts import ManualHost


class Scheduling:
    def __init__(self, hosts: int = 1) -> None:
        self.hosts = [ManualHost(f"m_0_{number}") for number in range(hosts)]
        self.scheduler = DefaultScheduler("m", InstancePool(self.hosts), FakeClock())
        self.answers: list[str] = []

    def send(self, name: str, rows: int = 1, **fields: Any) -> InferenceRequest:
        request = InferenceRequest("m", 1, name, batch_size=rows, **fields)
        request.deliver = lambda item, _: self.answers.append(item.id)
        self.scheduler.enqueue(request)
        return request

    def executed(self, number: int = 0) -> list[list[str]]:
        return [[item.id for item in batch.requests] for batch in self.hosts[number].executed]


def test_each_request_is_executed_alone_in_order_of_arrival():
    """SCH-020."""
    scheduling = Scheduling()
    for name in "abc":
        scheduling.send(name, rows=2)

    for _ in range(3):
        scheduling.hosts[0].finish()

    assert scheduling.executed() == [["a"], ["b"], ["c"]]
    assert scheduling.hosts[0].executed[0].batch_size == 2


def test_idle_instances_take_turns():
    """SCH-021."""
    scheduling = Scheduling(hosts=2)

    scheduling.send("a")
    scheduling.hosts[0].finish()
    scheduling.send("b")

    assert scheduling.executed(1) == [["b"]]


def test_requests_of_a_sequence_are_like_any_others():
    """SCH-022: no START is needed, and no instance is theirs."""
    scheduling = Scheduling(hosts=2)

    scheduling.send("a", correlation_id=7)
    scheduling.send("b", correlation_id=7, sequence_end=True)

    assert scheduling.executed(0) == [["a"]]
    assert scheduling.executed(1) == [["b"]]


def test_what_waits_counts_as_queued_and_what_executes_as_in_flight():
    """SCH-021."""
    scheduling = Scheduling()
    for name in "abc":
        scheduling.send(name)

    assert (scheduling.scheduler.queued_count, scheduling.scheduler.inflight_count) == (2, 3)
    assert repr(scheduling.scheduler) == "<DefaultScheduler m queued=2 executing=1>"


def test_a_cancelled_request_leaves_the_queue_and_is_not_executed():
    """SCH-142."""
    scheduling = Scheduling()
    scheduling.send("a")
    request = scheduling.send("b")

    request.cancel()
    scheduling.hosts[0].finish()

    assert scheduling.executed() == [["a"]]
    assert scheduling.answers == ["b", "a"]


async def test_stopping_refuses_new_requests_and_waits_for_the_others():
    scheduling = Scheduling()
    scheduling.send("a")
    scheduling.send("b")

    stopping = asyncio.ensure_future(scheduling.scheduler.stop())
    await asyncio.sleep(0)
    with pytest.raises(QueueRejectedError, match="Server is stopping"):
        scheduling.send("c")
    scheduling.hosts[0].finish()
    assert not stopping.done()
    scheduling.hosts[0].finish()
    await stopping

    assert scheduling.answers == ["a", "b"]


def test_without_a_sequence_batcher_a_sequence_has_no_instance_of_its_own():
    """SCH-022."""
    scheduling = Scheduling(hosts=2)

    for number in range(2):
        scheduling.send(f"r{number}", correlation_id=7, sequence_start=number == 0)
    for host in scheduling.hosts:
        host.finish()
    scheduling.send("no start", correlation_id=8)

    assert scheduling.executed(0) == [["r0"], ["no start"]]
    assert scheduling.executed(1) == [["r1"]]
