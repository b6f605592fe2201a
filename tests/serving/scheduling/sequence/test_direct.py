"""The direct strategy: a slot for life, fillers, and when a batch goes. Spec SCH-054, 055, 068."""

from __future__ import annotations

import numpy as np

from tests.serving.scheduling.sequence.sequencing import Sequencing

READY = (
    'control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY '
    "int32_false_true: [0, 1] } }"
)
UTILIZATION = "direct { minimum_slot_utilization: 0.75 max_queue_delay_microseconds: 1000 }"


def test_all_ready_slots_of_an_instance_run_together():
    """SCH-054."""
    sequencing = Sequencing()

    sequencing.send("1.1", "2.1", "3.1", "4.1")
    sequencing.turn()

    assert sequencing.batches() == ["1.1 2.1 3.1 4.1: full"]


def test_a_sequence_keeps_its_row_for_its_life():
    """SCH-054: what is not ready gets a filler, up to the highest row that takes part."""
    sequencing = Sequencing()
    sequencing.run("1.1", "2.1", "3.1")

    sequencing.run("3.2")
    sequencing.run("2.2")
    sequencing.run("1.2", "3.3")

    assert sequencing.rows() == ["1.1 2.1 3.1", "- - 3.2", "- 2.2", "1.2 - 3.3"]


def test_a_filler_has_zeros_shaped_like_a_real_row_and_is_not_ready():
    """SCH-054."""
    sequencing = Sequencing(f"direct {{ }} {READY}")
    sequencing.run("1.1", "2.1", columns=3)

    sequencing.send("2.2", columns=3)
    sequencing.turn()

    batch = sequencing.host.executed[-1]
    filler, real = batch.requests
    assert batch.batch_size == 2
    np.testing.assert_array_equal(filler.inputs["IN"].array, np.zeros((1, 3), np.float32))
    assert filler.inputs["READY"].array.tolist() == [[0]]
    assert real.inputs["READY"].array.tolist() == [[1]]
    assert filler.deliver is None


def test_one_request_of_a_sequence_runs_at_a_time_and_in_order():
    """SCH-054."""
    sequencing = Sequencing()

    sequencing.run("1.1", "1.2", "1.3")

    assert sequencing.rows() == ["1.1", "1.2", "1.3"]
    assert [name for name, _ in sequencing.answers] == ["1.1", "1.2", "1.3"]


def test_a_model_without_batching_has_one_slot_for_each_instance():
    """SCH-054."""
    sequencing = Sequencing(max_batch_size=0, hosts=2)

    sequencing.send("1.1", "2.1", "3.1")
    sequencing.turn()

    assert sequencing.batches(0) == ["1.1: full"]
    assert sequencing.batches(1) == ["2.1: full"]
    assert sequencing.batcher.slot_usage.backlog == 1


def test_sequences_spread_over_the_instances():
    """SCH-054: the lowest free row of all instances is taken first."""
    sequencing = Sequencing(hosts=2, max_batch_size=2)

    for name in ("1.1", "2.1", "3.1", "4.1"):
        sequencing.send(name)
    sequencing.turn()

    assert sequencing.batches(0) == ["1.1 3.1: full"]
    assert sequencing.batches(1) == ["2.1 4.1: full"]


def test_a_sequence_stays_on_its_instance():
    """SCH-054."""
    sequencing = Sequencing(hosts=2, max_batch_size=1)
    sequencing.run("1.1", "2.1")

    sequencing.send("2.2")
    sequencing.turn()
    sequencing.send("1.2")
    sequencing.turn()

    assert sequencing.batches(0) == ["1.1: full", "1.2: full"]
    assert sequencing.batches(1) == ["2.1: full", "2.2: full"]


def test_a_batch_waits_until_the_wanted_share_of_slots_is_ready():
    """SCH-055."""
    sequencing = Sequencing(UTILIZATION)

    sequencing.send("1.1", "2.1")
    sequencing.clock.advance_us(999)
    assert sequencing.batches() == []
    sequencing.send("3.1")
    sequencing.turn()

    assert sequencing.batches() == ["1.1 2.1 3.1: preferred"]


def test_a_batch_waits_no_longer_than_the_delay():
    """SCH-055."""
    sequencing = Sequencing(UTILIZATION)

    sequencing.send("1.1")
    sequencing.clock.advance_us(999)
    assert sequencing.batches() == []
    sequencing.clock.advance_us(1)

    assert sequencing.batches() == ["1.1: delay"]


def test_the_delay_counts_for_nothing_without_a_wanted_share():
    """SCH-055."""
    sequencing = Sequencing("direct { max_queue_delay_microseconds: 1000000 }")

    sequencing.send("1.1")
    sequencing.turn()

    assert sequencing.batches() == ["1.1: queue_empty"]


def test_other_shapes_wait_for_a_batch_of_their_own():
    """SCH-068: the one ready for longest decides on the shape."""
    sequencing = Sequencing()
    sequencing.send("1.1", columns=3)
    sequencing.send("2.1", columns=2)
    sequencing.send("3.1", columns=3)

    sequencing.turn()
    sequencing.finish()

    assert sequencing.batches() == ["1.1 - 3.1: shape", "- 2.1: queue_empty"]


def test_no_shape_is_passed_over_for_ever():
    """SCH-068."""
    sequencing = Sequencing(max_batch_size=2)
    sequencing.send("1.1", columns=3)
    sequencing.send("2.1", columns=2)
    sequencing.send("1.2", "1.3", columns=3)
    sequencing.turn()

    sequencing.finish()

    assert sequencing.rows() == ["1.1", "- 2.1"]


def test_ragged_inputs_may_differ_in_shape():
    """SCH-068."""
    inputs = 'input { name: "IN" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }'
    sequencing = Sequencing(inputs=inputs)
    sequencing.send("1.1", columns=3)
    sequencing.send("2.1", columns=2)

    sequencing.turn()

    assert sequencing.rows() == ["1.1 2.1"]


def test_the_next_batch_goes_with_the_last_answer_of_the_one_before():
    """SCH-054: all its sequences take part, and the instance waits for no turn of the loop."""
    sequencing = Sequencing()
    sequencing.send("1.1", "2.1", "1.2", "2.2")
    sequencing.turn()

    sequencing.host.finish()

    assert sequencing.rows() == ["1.1 2.1", "1.2 2.2"]
