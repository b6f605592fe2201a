"""The queue by itself: order, policies, and what it forgets."""

from __future__ import annotations

import gc
import weakref

import pytest

from serving.config.decode import QueuePolicy
from serving.errors import QueueRejectedError
from serving.request import InferenceRequest
from serving.scheduling.queue import RequestQueue


class Name(str):
    """Text that a weak reference can watch; requests themselves have slots."""


def request(name: str, priority: int = 0, rows: int = 1) -> InferenceRequest:
    return InferenceRequest("m", 1, name, priority=priority, batch_size=rows)


def ids(queue: RequestQueue) -> str:
    return "".join(item.id for item in queue)


def test_levels_are_served_in_order_and_each_first_in_first_out():
    queue = RequestQueue("m", priority_levels=3, default_level=2)
    for name, priority in (("a", 3), ("b", 1), ("c", 0), ("d", 1), ("e", 2)):
        queue.push(request(name, priority), 0)

    assert ids(queue) == "bdcea"


def test_a_delayed_request_comes_after_its_level_and_before_lower_levels():
    policy = QueuePolicy(timeout_action_delay=True, default_timeout_us=1)
    queue = RequestQueue("m", priority_levels=2, default_level=1, level_policies={1: policy})
    queue.push(request("old", 1), 0)
    queue.push(request("low", 2), 0)

    assert queue.expire(1000) == []
    queue.push(request("new", 1), 1000)

    assert ids(queue) == "newoldlow"
    assert repr(queue) == "<RequestQueue 3 waiting+delayed by level [1:1+1 2:1+0]>"


def test_a_delayed_request_still_counts_against_the_limit():
    policy = QueuePolicy(timeout_action_delay=True, default_timeout_us=1, max_queue_size=1)
    queue = RequestQueue("m", default_policy=policy)
    queue.push(request("a"), 0)
    queue.expire(1000)

    with pytest.raises(QueueRejectedError):
        queue.push(request("b"), 1000)


def test_expired_requests_leave_in_order_of_their_deadlines():
    policy = QueuePolicy(default_timeout_us=10, allow_timeout_override=True)
    queue = RequestQueue("m", default_policy=policy)
    slow, fast = request("slow"), request("fast")
    fast.timeout_us = 5
    queue.push(slow, 0)
    queue.push(fast, 0)

    assert queue.next_deadline_ns() == 5000
    assert [item.id for item in queue.expire(10_000)] == ["fast", "slow"]
    assert queue.next_deadline_ns() == 0


def test_batch_items_is_the_sum_of_what_waits():
    queue = RequestQueue("m")
    first = request("a", rows=3)
    queue.push(first, 0)
    queue.push(request("b", rows=2), 0)

    queue.remove(first)

    assert queue.batch_items == 2
    assert len(queue) == 1


def test_requests_that_left_are_not_kept_alive_until_their_deadline():
    queue = RequestQueue("m", default_policy=QueuePolicy(default_timeout_us=10**9))
    left = []
    for _ in range(1000):
        item = request(Name("a"))
        queue.push(item, 0)
        queue.remove(item)
        left.append(weakref.ref(item.id))
    del item
    gc.collect()

    assert sum(reference() is not None for reference in left) <= 66
