"""The dynamic batcher, decision by decision, on a clock that stands still. Spec SCH-030..046."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import QueueRejectedError, UnavailableError
from serving.request import InputTensor
from serving.stats import ModelStats
from tests.serving.scheduling.hosts import Batching

TWO_INPUTS = """input [{ name: "IN" data_type: TYPE_FP32 dims: [2] },
                       { name: "MORE" data_type: TYPE_FP32 dims: [2] optional: true }]"""


def test_requests_that_wait_for_an_instance_run_together():
    """SCH-030."""
    batching = Batching()
    batching.send("a")
    batching.turn()
    batching.send("b", "c", "d")

    batching.host.finish()

    assert batching.batches() == ["a: queue_empty", "b c d: queue_empty"]


def test_requests_of_one_loop_turn_run_together_even_when_an_instance_is_idle():
    batching = Batching()

    batching.send("a", "b", "c")
    batching.turn()

    assert batching.batches() == ["a b c: queue_empty"]


def test_a_batch_never_exceeds_max_batch_size_and_never_splits_a_request():
    """SCH-030."""
    batching = Batching()

    batching.send("a", "b", "c", rows=3)
    batching.turn()
    batching.host.finish()

    assert batching.batches() == ["a b: full", "c: queue_empty"]
    assert [batch.batch_size for batch in batching.host.executed] == [6, 3]


def test_a_full_batch_goes_without_waiting_for_the_delay():
    batching = Batching("max_queue_delay_microseconds: 1000", max_batch_size=4)

    batching.send("a", "b", "c", "d")
    batching.turn()

    assert batching.batches() == ["a b c d: full"]


def test_the_largest_preferred_size_within_reach_is_taken():
    """SCH-031."""
    batching = Batching("preferred_batch_size: [2, 4]")

    batching.send("a", "b", "c", "d", "e")
    batching.turn()
    batching.host.finish()

    assert batching.batches() == ["a b c d: preferred", "e: queue_empty"]


def test_growth_stops_at_the_largest_preferred_size():
    """SCH-031."""
    batching = Batching("preferred_batch_size: [4] max_queue_delay_microseconds: 1000")

    batching.send("a", "b", "c", "d", "e", "f")
    batching.turn()

    assert batching.batches() == ["a b c d: preferred"]


def test_requests_too_large_for_any_preferred_size_go_as_far_as_they_fit():
    batching = Batching("preferred_batch_size: [4] max_queue_delay_microseconds: 1000")

    batching.send("a", "b", "c", rows=3)
    batching.turn()

    assert batching.batches() == ["a: full"]


def test_a_batch_below_the_preferred_size_waits_until_its_oldest_request_is_old_enough():
    """SCH-032."""
    batching = Batching("preferred_batch_size: [4] max_queue_delay_microseconds: 1000")
    batching.send("a")
    batching.clock.advance_us(600)
    batching.send("b")

    batching.clock.advance_us(399)
    assert batching.batches() == []
    batching.clock.advance_us(1)

    assert batching.batches() == ["a b: delay"]


def test_when_the_delay_is_over_the_whole_pending_batch_goes_not_only_a_preferred_size():
    """SCH-031, SCH-032."""
    batching = Batching("preferred_batch_size: [2] max_queue_delay_microseconds: 1000")
    batching.send("x")
    batching.clock.advance_us(1000)
    batching.send("a", "b", "c")
    batching.clock.advance_us(1000)

    batching.host.finish()

    assert batching.batches() == ["x: delay", "a b c: delay"]


def test_without_a_delay_a_free_instance_takes_what_is_there():
    batching = Batching("preferred_batch_size: [4]")

    batching.send("a")
    batching.turn()

    assert batching.batches() == ["a: queue_empty"]


def test_a_different_shape_closes_the_batch():
    """SCH-033."""
    batching = Batching("max_queue_delay_microseconds: 1000")

    batching.send("a", "b")
    batching.send("c", columns=3)
    batching.turn()

    assert batching.batches() == ["a b: shape"]


def test_a_ragged_input_may_have_different_shapes_in_one_batch():
    """SCH-033."""
    ragged = 'input { name: "IN" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }'
    batching = Batching(inputs=ragged)

    batching.send("a")
    batching.send("b", columns=3)
    batching.turn()

    assert batching.batches() == ["a b: queue_empty"]


def test_a_different_set_of_optional_inputs_closes_the_batch():
    """SCH-033."""
    batching = Batching(inputs=TWO_INPUTS)

    batching.send("a", "b")
    batching.send("c", names=("IN", "MORE"))
    batching.turn()
    batching.host.finish()

    assert batching.batches() == ["a b: optional", "c: queue_empty"]


def test_zero_element_requests_are_batched_like_others():
    """SCH-018."""
    batching = Batching()

    batching.send("a", "b", columns=0)
    batching.turn()

    assert batching.batches() == ["a b: queue_empty"]


def test_two_idle_instances_share_what_waits():
    batching = Batching(max_batch_size=2, hosts=2)

    batching.send("a", "b", "c")
    batching.turn()

    assert batching.batches() == ["a b: full", "c: queue_empty"]


def test_with_preserve_ordering_a_faster_instance_waits_with_its_answers():
    """SCH-034."""
    batching = Batching("preserve_ordering: true", max_batch_size=1, hosts=2)
    batching.send("a", "b")
    batching.turn()

    batching.hosts[1].finish()
    assert batching.answers == []
    batching.hosts[0].finish()

    assert batching.answers == [("a", "ok"), ("b", "ok")]


def test_without_preserve_ordering_the_faster_instance_answers_first():
    """SCH-034."""
    batching = Batching(max_batch_size=1, hosts=2)
    batching.send("a", "b")
    batching.turn()

    batching.hosts[1].finish()

    assert batching.answers == [("b", "ok")]


def test_the_test_hook_holds_the_first_batch_until_enough_requests_wait():
    """SCH-042."""
    batching = Batching(hold_until=3)
    batching.send("a", "b")
    batching.turn()
    assert batching.batches() == []

    batching.send("c")
    batching.turn()
    batching.host.finish()
    batching.send("d")
    batching.turn()

    assert batching.batches() == ["a b c: queue_empty", "d: queue_empty"]


def test_a_request_cancelled_in_the_queue_leaves_it_and_is_answered_at_once():
    """SCH-045."""
    batching = Batching()
    batching.send("x")
    batching.turn()
    request = batching.send("a")
    batching.send("b")

    request.cancel()

    assert batching.answers[0][0] == "a"
    assert "was cancelled while it waited" in batching.answers[0][1]
    batching.host.finish()
    assert batching.batches() == ["x: queue_empty", "b: queue_empty"]


def test_cancelling_the_oldest_request_lets_the_others_wait_for_their_own_delay():
    batching = Batching("preferred_batch_size: [4] max_queue_delay_microseconds: 1000")
    request = batching.send("a")
    batching.clock.advance_us(600)
    batching.send("b")

    request.cancel()
    batching.clock.advance_us(400)
    assert batching.batches() == []
    batching.clock.advance_us(600)

    assert batching.batches() == ["b: delay"]


def test_cancelling_an_executing_request_is_left_to_the_instance():
    """SCH-142."""
    batching = Batching()
    request = batching.send("a")
    batching.turn()

    request.cancel()
    batching.host.finish()

    assert batching.answers == [("a", "ok")]


async def test_stopping_refuses_new_requests_and_finishes_the_others():
    """SCH-046."""
    batching = Batching("preferred_batch_size: [8] max_queue_delay_microseconds: 1000")
    batching.send("a")

    stopping = asyncio.ensure_future(batching.batcher.stop())
    await asyncio.sleep(0)
    with pytest.raises(QueueRejectedError, match="Server is stopping"):
        batching.send("b")
    assert not stopping.done()
    batching.clock.advance_us(1000)
    batching.host.finish()
    await stopping

    assert batching.answers == [("a", "ok")]
    assert batching.batcher.inflight_count == 0


def test_requests_wait_while_the_only_instance_restarts():
    batching = Batching()
    batching.host.is_ready = False
    batching.send("a")
    batching.turn()
    assert batching.batches() == []

    batching.host.is_ready = True
    batching.host.on_state_change()

    assert batching.batches() == ["a: queue_empty"]


def test_when_no_instance_will_come_back_waiting_and_new_requests_fail_with_the_reason():
    batching = Batching()
    batching.host.is_ready = False
    batching.send("a")

    batching.host.fail_for_good("exit code 3")

    assert "has no working instance: exit code 3" in batching.answers[0][1]
    with pytest.raises(UnavailableError, match="exit code 3"):
        batching.send("b")


def test_repr_shows_the_state():
    batching = Batching("priority_levels: 2 default_priority_level: 2")
    batching.send("x")
    batching.turn()
    batching.send("a")
    batching.send("b", priority=1)

    assert repr(batching.batcher) == (
        "<DynamicBatcher m <RequestQueue 2 waiting+delayed by level [1:1+0 2:1+0]> executing=1>"
    )
    assert repr(batching.pool) == "<InstancePool idle=0 busy=1>"


def test_different_values_of_a_shape_tensor_close_the_batch():
    """SCH-033: inputs that must be equal."""
    batching = Batching(
        inputs='input { name: "IN" data_type: TYPE_FP32 dims: [-1] } '
        'input { name: "SIZE" data_type: TYPE_INT32 dims: [1] is_shape_tensor: true }'
    )
    batching.keep_busy()
    for name, value in (("a", 1), ("b", 1), ("c", 2)):
        size = np.array([value], np.int32)
        batching.send(name, extra={"SIZE": InputTensor("SIZE", BY_NAME["INT32"], (1,), size)})

    batching.host.finish()
    batching.host.finish()

    assert batching.batches()[1:] == ["a b: shape_tensor", "c: queue_empty"]


def test_a_batch_of_another_priority_fills_up_with_lower_levels():
    """SCH-035, as the real Triton does: levels order the queue, they do not divide batches."""
    batching = Batching("priority_levels: 3 default_priority_level: 2", max_batch_size=4)
    batching.keep_busy()
    for name, level in (("c1", 3), ("c2", 3), ("a1", 1), ("b1", 2), ("a2", 1), ("c3", 3)):
        batching.send(name, priority=level)

    batching.host.finish()
    batching.host.finish()

    assert batching.batches()[1:] == ["a1 a2 b1 c1: full", "c2 c3: queue_empty"]


def test_a_batch_ends_before_a_request_that_does_not_fit_even_if_a_later_one_would():
    """SCH-033."""
    batching = Batching(max_batch_size=4)
    batching.keep_busy()
    for name, rows in (("a", 3), ("b", 2), ("c", 1)):
        batching.send(name, rows=rows)

    batching.host.finish()
    batching.host.finish()

    assert batching.batches()[1:] == ["a: full", "b c: queue_empty"]


def test_every_reason_is_counted_for_the_model():
    """SCH-044: what the statistics and metrics show comes from here."""
    stats = ModelStats()
    batching = Batching(
        "preferred_batch_size: 2 max_queue_delay_microseconds: 100",
        max_batch_size=4,
        on_executed=lambda batch: stats.record_execution(batch.batch_size, batch.reason, 1, 1, 1),
    )
    batching.send("a", "b")
    batching.turn()
    batching.host.finish()
    batching.send("late")
    batching.clock.advance_us(100)
    batching.host.finish()
    batching.send("big", rows=4)
    batching.turn()
    batching.host.finish()

    assert stats.snapshot().close_reasons == {"preferred": 1, "delay": 1, "full": 1}
