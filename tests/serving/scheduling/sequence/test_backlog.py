"""Sequences that wait for a slot, and those that nobody goes on with. Spec SCH-057..059."""

from __future__ import annotations

from serving.errors import ErrorCode, QueueRejectedError
from tests.serving.scheduling.sequence.sequencing import IDLE, Sequencing, both


def test_sequences_beyond_the_slots_wait_in_order_with_all_their_requests():
    """SCH-057."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.send("1.1", "2.1", "3.1", "2.2", "2.3!")
    sequencing.turn()
    assert (sequencing.batcher.slot_usage.backlog, sequencing.batcher.queued_count) == (2, 4)

    sequencing.send("1.2!")
    while sequencing.host.running:
        sequencing.finish()

    assert sequencing.rows() == ["1.1", "1.2", "2.1", "2.2", "2.3", "3.1"]


def test_nobody_overtakes_the_backlog():
    """SCH-057: a slot that has just become free belongs to who waits."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.send("1.1!", "2.1!")
    sequencing.turn()

    sequencing.host.finish()
    sequencing.send("3.1!")
    sequencing.turn()

    assert sequencing.rows() == ["1.1", "2.1"]


@both
def test_an_idle_sequence_is_dropped_and_its_slot_is_free(batching):
    """SCH-058."""
    sequencing = Sequencing(f"{batching} {IDLE}")
    sequencing.run("1.1")

    sequencing.clock.advance_us(1_999_999)
    assert sequencing.batcher.slot_usage.active == 1
    sequencing.clock.advance_us(1)

    assert sequencing.batcher.slot_usage.active == 0
    error = sequencing.refusal("1.2")
    assert "must specify the START flag" in error.message
    assert "it had been idle for longer than max_sequence_idle_microseconds (2 s)" in error.message


def test_each_request_begins_a_new_time_of_idleness():
    """SCH-058."""
    sequencing = Sequencing(IDLE)
    for name in ("1.1", "1.2", "1.3"):
        sequencing.run(name)
        sequencing.clock.advance_us(1_900_000)

    assert sequencing.batcher.slot_usage.active == 1


def test_a_sequence_is_not_idle_while_it_waits_or_runs():
    """SCH-058: a slow model does not lose its sequences."""
    sequencing = Sequencing(IDLE, max_batch_size=1)
    sequencing.send("1.1", "2.1")
    sequencing.clock.advance_us(60_000_000)
    sequencing.finish()
    sequencing.clock.advance_us(1_999_999)

    sequencing.send("1.2")

    assert sequencing.batcher.slot_usage.active == 1
    assert sequencing.batcher.slot_usage.backlog == 1


def test_an_idle_sequence_makes_room_for_the_backlog():
    """SCH-057, SCH-058."""
    sequencing = Sequencing(IDLE, max_batch_size=1)
    sequencing.run("1.1")
    sequencing.send("2.1")
    sequencing.turn()
    assert sequencing.rows() == ["1.1"]

    sequencing.clock.advance_us(2_000_000)

    assert sequencing.rows() == ["1.1", "2.1"]


def test_a_timeout_in_the_backlog_rejects_the_whole_sequence():
    """SCH-059."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.run("1.1")
    sequencing.send("2.1")
    sequencing.send("2.2", timeout_us=500)
    sequencing.send("2.3", timeout_us=900)

    sequencing.clock.advance_us(499)
    assert len(sequencing.answers) == 1
    sequencing.clock.advance_us(1)

    answers = dict(sequencing.answers)
    for name in ("2.1", "2.2", "2.3"):
        assert "timeout of the corresponding sequence has been expired" in answers[name]
    assert "longer than its timeout" in sequencing.refusal("2.4").message
    assert sequencing.batcher.queued_count == 0


def test_a_timeout_counts_in_the_backlog_only():
    """SCH-059."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.send("1.1", "1.2", timeout_us=500)
    sequencing.turn()

    sequencing.clock.advance_us(600)
    sequencing.finish()

    assert sequencing.rows() == ["1.1", "1.2"]


def test_a_timed_out_sequence_is_counted_as_rejected():
    """SCH-059: UNAVAILABLE, reason REJECTED."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.run("1.1")
    errors = []
    request = sequencing.request("2.1", correlation_id=2, sequence_start=True, timeout_us=5)
    request.deliver = lambda _, response: errors.append(response.error)
    sequencing.batcher.enqueue(request)

    sequencing.clock.advance_us(5)

    assert isinstance(errors[0], QueueRejectedError)
    assert errors[0].code is ErrorCode.UNAVAILABLE
