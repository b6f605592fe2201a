"""Priorities and queue policies of the dynamic batcher, on a still clock. Spec SCH-035..041."""

from __future__ import annotations

import pytest

from serving.errors import QueueRejectedError
from tests.serving.scheduling.hosts import Batching

REJECT = "default_queue_policy { default_timeout_microseconds: 1000 }"


def test_a_higher_priority_is_served_first():
    """SCH-035."""
    batching = Batching("priority_levels: 3 default_priority_level: 2", max_batch_size=2)
    batching.send("x", rows=2)
    batching.turn()
    batching.send("low", priority=3)
    batching.send("default")
    batching.send("beyond", priority=9)
    batching.send("high", priority=1)

    batching.host.finish()
    batching.host.finish()

    assert batching.batches()[1:] == ["high default: full", "beyond low: full"]


def test_a_full_queue_refuses_with_unavailable_and_queues_nothing():
    """SCH-037."""
    batching = Batching("default_queue_policy { max_queue_size: 2 }")
    batching.send("x")
    batching.turn()
    batching.send("a", "b")

    with pytest.raises(QueueRejectedError, match="Exceeds maximum queue size: 2 requests wait"):
        batching.send("c")

    assert batching.batcher.queued_count == 2


def test_each_priority_level_has_its_own_queue_policy():
    """SCH-036."""
    batching = Batching(
        "priority_levels: 2 default_priority_level: 1 "
        "priority_queue_policy { key: 2 value { max_queue_size: 1 } }"
    )
    batching.send("x")
    batching.turn()
    batching.send("a", "b", "c", priority=1)
    batching.send("low", priority=2)

    with pytest.raises(QueueRejectedError, match="at priority level 2"):
        batching.send("low2", priority=2)


def test_a_request_that_waits_too_long_is_rejected_promptly_while_all_instances_are_busy():
    """SCH-038, SCH-039."""
    batching = Batching(REJECT)
    batching.send("x")
    batching.turn()
    batching.send("a")

    batching.clock.advance_us(999)
    assert batching.answers == []
    batching.clock.advance_us(1)

    assert batching.answers[0][0] == "a"
    assert "Request timeout expired: the request waited 1000 us" in batching.answers[0][1]
    assert batching.batcher.queued_count == 0


def test_a_timeout_never_interrupts_an_execution():
    """SCH-145."""
    batching = Batching(REJECT)
    batching.send("a")
    batching.turn()

    batching.clock.advance_us(5000)
    batching.host.finish()

    assert batching.answers == [("a", "ok")]


def test_timeout_action_delay_moves_a_request_behind_those_in_time_and_still_serves_it():
    """SCH-040."""
    batching = Batching(
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000 }",
        max_batch_size=1,
    )
    batching.send("x")
    batching.turn()
    batching.send("old")
    batching.clock.advance_us(1000)
    batching.send("new")

    for _ in range(3):
        batching.host.finish()

    assert batching.answers == [("x", "ok"), ("new", "ok"), ("old", "ok")]


@pytest.mark.parametrize(
    ("override", "timeout_us", "expires_at_us"),
    [("true", 400, 400), ("true", 4000, 1000), ("true", 0, 1000), ("false", 400, 1000)],
)
def test_a_request_may_shorten_its_queue_timeout_where_allowed(override, timeout_us, expires_at_us):
    """SCH-041."""
    batching = Batching(
        "default_queue_policy { default_timeout_microseconds: 1000 "
        f"allow_timeout_override: {override} }}"
    )
    batching.send("x")
    batching.turn()
    batching.send("a", timeout_us=timeout_us)

    batching.clock.advance_us(expires_at_us - 1)
    assert batching.answers == []
    batching.clock.advance_us(1)

    assert len(batching.answers) == 1


def test_a_request_timeout_has_no_effect_where_the_policy_has_none():
    """SCH-041."""
    batching = Batching("default_queue_policy { allow_timeout_override: true }")
    batching.send("x")
    batching.turn()
    batching.send("a", timeout_us=10)

    batching.clock.advance_us(100_000)

    assert batching.answers == []
