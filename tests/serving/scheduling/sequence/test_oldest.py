"""The oldest strategy: candidates, batches in any row, delay, ordering. Spec SCH-056, SCH-068."""

from __future__ import annotations

from serving.response import InferenceResponse
from tests.serving.scheduling.sequence.sequencing import Sequencing

OLDEST = "oldest { max_candidate_sequences: 4 }"


def test_at_most_one_request_of_a_sequence_is_in_a_batch():
    """SCH-056."""
    sequencing = Sequencing(OLDEST)

    sequencing.run("1.1", "1.2", "2.1", "3.1")

    assert sequencing.rows() == ["1.1 2.1 3.1", "1.2"]


def test_rows_are_not_fixed_and_there_are_no_fillers():
    """SCH-056."""
    sequencing = Sequencing(OLDEST)
    sequencing.run("1.1", "2.1", "3.1")

    sequencing.run("3.2", "1.2")

    assert sequencing.rows()[-1] == "3.2 1.2"


def test_the_sequence_that_is_ready_for_longest_comes_first():
    """SCH-056: a long queue of one sequence does not hold up another."""
    sequencing = Sequencing(OLDEST, max_batch_size=1)
    sequencing.send("1.1", "1.2", "1.3", "2.1", "2.2")
    sequencing.turn()

    while sequencing.host.running:
        sequencing.finish()

    assert sequencing.rows() == ["1.1", "2.1", "1.2", "2.2", "1.3"]


def test_sequences_beyond_the_candidates_wait_in_the_backlog():
    """SCH-056."""
    sequencing = Sequencing("oldest { max_candidate_sequences: 2 }")

    sequencing.send("1.1", "2.1", "3.1")
    sequencing.turn()

    assert sequencing.rows() == ["1.1 2.1"]
    assert sequencing.batcher.slot_usage.backlog == 1


def test_without_a_number_of_candidates_the_batch_size_counts():
    """SCH-056."""
    sequencing = Sequencing("oldest { }", max_batch_size=2)

    sequencing.send("1.1", "2.1", "3.1")
    sequencing.turn()

    assert sequencing.rows() == ["1.1 2.1"]


def test_a_preferred_size_goes_at_once_and_others_wait_for_the_delay():
    """SCH-056."""
    sequencing = Sequencing(
        "oldest { max_candidate_sequences: 8 preferred_batch_size: [2] "
        "max_queue_delay_microseconds: 1000 }",
        max_batch_size=8,
    )

    sequencing.send("1.1", "2.1", "3.1")
    sequencing.turn()
    sequencing.finish()
    sequencing.clock.advance_us(1000)

    assert sequencing.batches() == ["1.1 2.1: preferred", "3.1: delay"]


def test_the_delay_counts_from_when_a_request_is_the_next_of_its_sequence():
    """SCH-056: not from its arrival behind others."""
    sequencing = Sequencing(
        "oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 1000 }"
    )
    sequencing.send("1.1", "1.2")
    sequencing.clock.advance_us(1000)
    sequencing.clock.advance_us(5000)

    sequencing.finish()
    sequencing.clock.advance_us(999)
    assert sequencing.rows() == ["1.1"]
    sequencing.clock.advance_us(1)

    assert sequencing.batches()[-1] == "1.2: delay"


def test_other_shapes_wait_for_a_batch_of_their_own():
    """SCH-068."""
    sequencing = Sequencing(OLDEST)
    sequencing.send("1.1", columns=3)
    sequencing.send("2.1", columns=2)
    sequencing.send("3.1", columns=3)

    sequencing.turn()
    sequencing.finish()

    assert sequencing.batches()[0] == "1.1: shape"


def test_responses_leave_in_the_order_in_which_requests_became_ready():
    """SCH-056, preserve_ordering: where a model answers out of order."""
    sequencing = Sequencing("oldest { max_candidate_sequences: 4 preserve_ordering: true }")
    sequencing.send("1.1", "2.1")
    sequencing.turn()
    first, second = sequencing.host.executed[0].requests

    second.deliver(second, InferenceResponse("m", 1, second.id))
    assert sequencing.answers == []
    first.deliver(first, InferenceResponse("m", 1, first.id))

    assert [name for name, _ in sequencing.answers] == ["1.1", "2.1"]


def test_a_cancelled_request_holds_no_answer_back():
    """SCH-056, preserve_ordering."""
    sequencing = Sequencing("oldest { max_candidate_sequences: 4 preserve_ordering: true }")
    request = sequencing.send("1.1")
    sequencing.send("2.1")

    request.cancel()
    sequencing.turn()
    sequencing.finish()

    assert sequencing.answers[-1] == ("2.1", "ok")
    assert "cancelled" in dict(sequencing.answers)["1.1"]
