"""One batch that waits at the instance while it executes another, so that it need not sleep."""

from __future__ import annotations

import pytest

from tests.serving.scheduling.hosts import Batching
from tests.serving.scheduling.test_default import Scheduling


def scheduling(hosts: int = 1) -> Scheduling:
    made = Scheduling(hosts)
    for host in made.hosts:
        host.goes_ahead = True
        host.on_state_change = made.scheduler._on_instance_change
    return made


def test_one_request_waits_at_the_instance_and_the_others_in_the_queue():
    sched = scheduling()
    for name in "abcd":
        sched.send(name)
    host = sched.hosts[0]
    assert host.waiting is not None

    assert [item.id for item in host.waiting.requests] == ["b"]
    assert (sched.scheduler.queued_count, sched.scheduler.inflight_count) == (3, 4)
    for _ in range(4):
        host.finish()
    assert sched.executed() == [["a"], ["b"], ["c"], ["d"]]
    assert sched.answers == ["a", "b", "c", "d"]
    assert sched.scheduler.inflight_count == 0


def test_the_instance_is_idle_again_when_both_are_done():
    sched = scheduling()
    sched.send("a")
    sched.send("b")
    pool = sched.scheduler._pool

    sched.hosts[0].finish()
    assert pool.busy_count == 1
    sched.hosts[0].finish()

    assert (pool.busy_count, pool.idle_count) == (0, 1)


def test_of_several_instances_none_gets_more_than_it_executes():
    """The other one might be free sooner."""
    sched = scheduling(hosts=2)
    for name in "abc":
        sched.send(name)

    assert [host.waiting for host in sched.hosts] == [None, None]
    sched.hosts[1].finish()
    assert sched.executed(1) == [["b"], ["c"]]


def test_what_waited_at_an_instance_that_dies_is_the_next_in_the_queue():
    sched = scheduling()
    for name in "abc":
        sched.send(name)
    host = sched.hosts[0]

    host.die()
    assert sched.answers == ["a"]
    assert sched.scheduler.queued_count == 2
    host.come_back()
    host.finish()
    host.finish()

    assert sched.executed() == [["a"], ["b"], ["c"]]
    assert sched.answers == ["a", "b", "c"]


def test_what_was_given_back_can_be_cancelled():
    sched = scheduling()
    sched.send("a")
    early, late = sched.send("b"), sched.send("c")
    early.cancel()  # it executes, as far as the scheduler knows: nothing happens yet

    sched.hosts[0].die()
    assert early.times.compute_start_ns == 0, "no trace says that it began"
    late.cancel()

    assert sched.answers == ["b", "a", "c"]
    assert sched.scheduler.inflight_count == 0


def test_what_was_given_back_fails_where_no_instance_will_come_back():
    sched = scheduling()
    sched.send("a")
    sched.send("b")
    host = sched.hosts[0]
    host.has_failed, host.unready_reason = True, "given up"

    host.die()

    assert sorted(sched.answers) == ["a", "b"]


def batching(scheduling: str = "", size: int = 2) -> Batching:
    made = Batching(scheduling, max_batch_size=size)
    made.host.goes_ahead = True
    made.keep_busy()
    return made


def waiting(made: Batching) -> list[str]:
    batch = made.host.waiting
    return [] if batch is None else [request.id for request in batch.requests]


def test_a_full_batch_waits_at_the_instance():
    made = batching()

    made.send("a", "b", "c")
    made.turn()

    assert waiting(made) == ["a", "b"]
    for _ in range(3):
        made.host.finish()
    assert made.batches() == ["busy: queue_empty", "a b: full", "c: queue_empty"]


def test_a_batch_that_may_grow_waits_in_the_queue():
    made = batching("preferred_batch_size: [2]", size=4)

    made.send("a", "b")
    made.turn()

    assert waiting(made) == []
    made.send("c", "d")
    made.turn()
    made.host.finish()
    assert made.batches()[1] == "a b: preferred"


@pytest.mark.parametrize(
    "setting",
    [
        "priority_levels: 2 default_priority_level: 2",
        "default_queue_policy { default_timeout_microseconds: 1000 }",
    ],
    ids=["priorities", "timeouts"],
)
def test_who_may_be_overtaken_or_run_out_of_time_waits_in_the_queue(setting: str):
    made = batching(setting)

    made.send("a", "b", "c")
    made.turn()

    assert waiting(made) == []
    assert made.batcher.queued_count == 3


def test_a_batch_that_was_given_back_comes_first_and_in_its_order():
    made = batching()
    made.send("a", "b", "c")
    made.turn()

    made.host.die()
    assert made.batcher.queued_count == 3
    made.host.come_back()
    made.turn()
    made.host.finish()

    assert made.batches() == ["busy: queue_empty", "a b: full", "c: queue_empty"]
