"""The life of a sequence: ids, flags, cancellation, test hooks; both strategies share all of it.

Spec SCH-050..053, 067, 070.
"""

from __future__ import annotations

import pytest

from serving.errors import CancelledError, InvalidArgumentError
from serving.response import InferenceResponse
from tests.serving.scheduling.sequence.sequencing import Sequencing, both


@pytest.mark.parametrize("correlation_id", [0, ""])
def test_a_request_without_a_correlation_id_is_refused(correlation_id):
    """SCH-050."""
    error = Sequencing().refusal("1.1", correlation_id=correlation_id)

    assert isinstance(error, InvalidArgumentError)
    assert "must specify a non-zero or non-empty correlation ID" in error.message


@both
def test_numbers_and_strings_are_different_ids(batching):
    """SCH-050."""
    sequencing = Sequencing(batching)

    sequencing.send("5.1")
    sequencing.send("b.1", correlation_id="5")
    sequencing.turn()

    assert sequencing.rows() == ["5.1 b.1"]


@both
def test_the_first_request_of_a_sequence_must_have_the_start_flag(batching):
    """SCH-051."""
    error = Sequencing(batching).refusal("5.2")

    assert isinstance(error, InvalidArgumentError)
    assert error.message == (
        "inference request for sequence 5 to model 'm' must specify the START flag on the first "
        "request of the sequence"
    )


@both
def test_the_end_flag_frees_the_slot_when_its_request_is_done(batching):
    """SCH-051."""
    sequencing = Sequencing(batching)
    sequencing.send("1.1!")
    sequencing.turn()
    assert sequencing.batcher.slot_usage.active == 1

    sequencing.finish()

    assert sequencing.batcher.slot_usage.active == 0


@both
def test_after_the_end_a_request_without_start_is_refused_and_told_why(batching):
    """SCH-051."""
    sequencing = Sequencing(batching)
    sequencing.run("1.1", "1.2!")
    sequencing.clock.advance_us(1_500_000)

    error = sequencing.refusal("1.3")

    assert "must specify the START flag" in error.message
    assert "sequence 1 ended 1.5 s ago: its last request had the END flag" in error.message


@both
def test_start_and_end_on_one_request_make_a_sequence_of_one(batching):
    """SCH-051."""
    sequencing = Sequencing(batching)

    sequencing.run("1.1!")
    sequencing.run("1.1!")

    assert sequencing.rows() == ["1.1", "1.1"]
    assert "START" in sequencing.refusal("1.2").message


@both
def test_a_sequence_that_starts_again_first_runs_what_waits_of_the_old_one(batching, caplog):
    """SCH-052."""
    sequencing = Sequencing(batching)
    sequencing.send("1.1", "1.2")

    sequencing.send("new", correlation_id=1, sequence_start=True)
    sequencing.run("1.3")

    assert sequencing.rows() == ["1.1", "1.2", "new", "1.3"]
    assert "sequence 1 started again before it ended" in caplog.text


@both
def test_a_sequence_with_the_id_of_one_that_is_ending_begins_when_that_is_over(batching):
    """SCH-051: a model that goes by the id never sees the two in one batch."""
    sequencing = Sequencing(batching)
    sequencing.send("1.1", "1.2!")
    sequencing.send("new.1", "new.2!", "newer.1!", correlation_id=1)
    sequencing.turn()
    assert sequencing.batcher.slot_usage.backlog == 2

    sequencing.run()

    assert sequencing.rows() == ["1.1", "1.2", "new.1", "new.2", "newer.1"]


@both
def test_one_that_is_given_up_while_it_follows_does_not_break_the_row(batching):
    """SCH-051, SCH-067."""
    sequencing = Sequencing(batching)
    sequencing.send("1.1", "1.2!")
    request = sequencing.send("new.1", correlation_id=1)

    request.cancel()
    sequencing.send("newer.1", correlation_id=1)
    sequencing.turn()
    assert sequencing.rows() == ["1.1"]
    sequencing.run("newer.2!", correlation_id=1)

    assert sequencing.rows() == ["1.1", "1.2", "newer.1", "newer.2"]


def test_the_timeout_of_one_that_follows_counts_from_its_arrival():
    """SCH-051, SCH-059."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.send("1.1!", "2.1")
    sequencing.send("new.1", correlation_id=1, timeout_us=500)
    sequencing.clock.advance_us(400)

    sequencing.finish()
    assert len(sequencing.answers) == 1
    sequencing.clock.advance_us(100)

    assert "timeout of the corresponding sequence" in dict(sequencing.answers)["new.1"]


@both
def test_a_request_must_have_batch_size_one(batching):
    """SCH-053."""
    error = Sequencing(batching).refusal("1.1", batch_size=2)

    assert isinstance(error, InvalidArgumentError)
    assert "must specify batch-size 1" in error.message


@both
def test_the_next_request_waits_for_the_final_response_and_for_the_end_of_the_execution(batching):
    """SCH-054, SCH-056: whichever comes first."""
    sequencing = Sequencing(batching)
    request = sequencing.send("1.1")
    sequencing.send("1.2")
    sequencing.turn()

    sequencing.host.running, done = None, sequencing.host.done
    done(sequencing.host.executed[0])
    sequencing.turn()
    assert sequencing.rows() == ["1.1"], "executed, not answered"
    request.deliver(request, InferenceResponse("m", 1, "1.1", is_final=False))
    sequencing.turn()
    assert sequencing.rows() == ["1.1"], "more answers follow"
    request.deliver(request, InferenceResponse("m", 1, "1.1"))
    sequencing.turn()
    assert sequencing.rows() == ["1.1", "1.2"]

    second = sequencing.host.running.requests[0]
    sequencing.send("1.3")
    second.deliver(second, InferenceResponse("m", 1, "1.2"))
    sequencing.turn()
    assert sequencing.rows() == ["1.1", "1.2"], "answered, not executed"
    sequencing.finish()
    assert sequencing.rows() == ["1.1", "1.2", "1.3"]


@both
def test_cancelling_a_request_cancels_those_behind_it_and_ends_the_sequence(batching):
    """SCH-067: what was sent before it still runs."""
    sequencing = Sequencing(batching)
    sequencing.send("1.1", "1.2")
    request = sequencing.send("1.3")
    sequencing.send("1.4")
    sequencing.turn()

    request.cancel()

    answers = dict(sequencing.answers)
    assert set(answers) == {"1.3", "1.4"}
    assert all("cancelled" in text for text in answers.values())
    assert "one of its requests was cancelled" in sequencing.refusal("1.5").message
    while sequencing.host.running:
        sequencing.finish()
    assert sequencing.rows() == ["1.1", "1.2"]
    assert sequencing.batcher.slot_usage.active == 0


@both
def test_a_cancelled_sequence_is_answered_cancelled(batching):
    """SCH-067, SCH-143."""
    sequencing = Sequencing(batching)
    errors = []
    request = sequencing.request("1.1", correlation_id=1, sequence_start=True)
    request.deliver = lambda _, response: errors.append(response.error)
    sequencing.batcher.enqueue(request)

    request.cancel()
    sequencing.turn()

    assert [type(error) for error in errors] == [CancelledError]
    assert sequencing.rows() == []
    assert sequencing.batcher.inflight_count == 0


@both
def test_a_sequence_that_started_again_outlives_the_cancellation_of_the_old_one(batching):
    """SCH-067, SCH-052."""
    sequencing = Sequencing(batching)
    sequencing.send("1.1")
    request = sequencing.send("1.2")
    sequencing.send("new", correlation_id=1, sequence_start=True)
    sequencing.turn()

    request.cancel()
    sequencing.run("1.3")

    assert sequencing.rows() == ["1.1", "new", "1.3"]


@both
def test_when_the_next_request_is_cancelled_the_new_start_takes_its_place(batching):
    """SCH-067, SCH-052."""
    sequencing = Sequencing(batching)
    request = sequencing.send("1.1")
    sequencing.send("new", correlation_id=1, sequence_start=True)

    request.cancel()
    sequencing.turn()

    assert sequencing.rows() == ["new"]


def test_a_cancelled_sequence_leaves_the_backlog():
    """SCH-067, SCH-057."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.send("1.1")
    request = sequencing.send("2.1")
    sequencing.send("2.2", "3.1")
    sequencing.turn()

    request.cancel()
    sequencing.run("1.2!")

    assert sequencing.rows() == ["1.1", "1.2", "3.1"]


def test_cancelling_what_runs_leaves_the_sequence_as_it_is():
    """SCH-067, SCH-142: once handed to an instance the backend decides."""
    sequencing = Sequencing()
    request = sequencing.send("1.1")
    sequencing.turn()

    request.cancel()
    sequencing.finish()
    sequencing.run("1.2")

    assert sequencing.rows() == ["1.1", "1.2"]


def test_the_hook_holds_the_slots_until_so_many_requests_wait():
    """SCH-070, TRITONSERVER_DELAY_SCHEDULER: once."""
    sequencing = Sequencing(hold_until=4)
    sequencing.send("1.1", "1.2", "2.1")
    sequencing.clock.advance_us(500_000)
    assert sequencing.rows() == []

    sequencing.run("2.2")
    sequencing.run("1.3")

    assert sequencing.rows() == ["1.1 2.1", "1.2 2.2", "1.3"]


def test_the_hook_holds_until_so_many_requests_stand_in_the_backlog():
    """SCH-070, TRITONSERVER_BACKLOG_DELAY_SCHEDULER."""
    sequencing = Sequencing(max_batch_size=1, hold_backlog=2)
    sequencing.send("1.1", "1.2", "2.1")
    sequencing.clock.advance_us(500_000)
    assert sequencing.rows() == []

    sequencing.send("2.2")
    sequencing.turn()

    assert sequencing.rows() == ["1.1"]


def test_slots_in_use_are_known_as_numbers():
    """SCH-054: for statistics and telemetry."""
    sequencing = Sequencing(max_batch_size=2, hosts=2)
    sequencing.send("1.1", "2.1", "3.1", "4.1", "5.1")

    usage = sequencing.batcher.slot_usage

    assert (usage.slots, usage.active, usage.backlog) == (4, 4, 1)
