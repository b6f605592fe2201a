"""Sequences when a server stops, and when instances come, go or die. Spec SCH-069, REP-093."""

from __future__ import annotations

import asyncio

from serving.errors import QueueRejectedError, UnavailableError
from tests.serving.scheduling.hosts import ManualHost
from tests.serving.scheduling.sequence.sequencing import IDLE, Sequencing


async def test_stopping_refuses_new_sequences_and_lets_the_others_come_to_their_end():
    """SCH-069."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.run("1.1")
    sequencing.send("2.1!")

    stopping = asyncio.ensure_future(sequencing.batcher.stop())
    await asyncio.sleep(0)
    error = sequencing.refusal("3.1")
    sequencing.run("1.2", "1.3!")
    await stopping

    assert isinstance(error, QueueRejectedError)
    assert "Server is stopping" in error.message
    assert sequencing.rows() == ["1.1", "1.2", "1.3", "2.1"]


async def test_a_sequence_that_nobody_goes_on_with_does_not_hold_up_the_stop():
    """SCH-069, SCH-058."""
    sequencing = Sequencing(IDLE)
    sequencing.run("1.1")
    stopping = asyncio.ensure_future(sequencing.batcher.stop())
    await asyncio.sleep(0)
    assert not stopping.done()

    sequencing.clock.advance_us(2_000_000)

    await stopping


async def test_abandoning_answers_what_waits_and_ends_the_stop():
    """SCH-069: when the time for it is over."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.run("1.1")
    sequencing.send("2.1")
    stopping = asyncio.ensure_future(sequencing.batcher.stop())
    await asyncio.sleep(0)

    sequencing.batcher.abandon(UnavailableError("time is over"))

    await stopping
    assert sequencing.answers[-1] == ("2.1", "time is over")


async def test_a_removed_instance_keeps_its_sequences_and_gets_no_new_ones():
    """REP-093."""
    sequencing = Sequencing(max_batch_size=2, hosts=2)
    sequencing.run("1.1", "2.1")
    old = sequencing.hosts[0]

    finished = sequencing.pool.remove(old)
    sequencing.run("3.1", "4.1", "1.2")
    assert not finished.done()
    sequencing.run("1.3!")

    assert finished.done()
    assert sequencing.batches(0) == ["1.1: queue_empty", "1.2: queue_empty", "1.3: queue_empty"]
    assert sequencing.batcher.slot_usage.backlog == 1, "4 found no slot"


async def test_an_instance_without_sequences_goes_at_once_and_one_that_comes_is_used():
    """REP-093."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.run("1.1")
    sequencing.send("2.1")
    new = ManualHost("m_0_1")

    sequencing.pool.add(new)
    sequencing.turn()

    assert [request.id for request in new.executed[0].requests] == ["2.1"]
    sequencing.run("1.2!")
    assert sequencing.pool.remove(sequencing.host).done()


def test_sequences_of_an_instance_that_dies_are_told_to_start_again():
    """SCH-054: what the model knew of them is gone."""
    sequencing = Sequencing(max_batch_size=2, hosts=2)
    sequencing.run("1.1", "2.1")
    sequencing.send("1.2", "3.1")

    sequencing.hosts[0].fail_for_good("it crashed")
    sequencing.turn()

    answers = dict(sequencing.answers)
    assert "instance 'm_0_0' of model 'm' has ended" in answers["1.2"]
    assert "start the sequence again" in answers["1.2"]
    assert "its instance 'm_0_0' ended" in sequencing.refusal("1.3").message
    assert sequencing.batches(1)[-1] == "- 3.1: queue_empty", "it had not begun yet"


async def test_a_removed_instance_that_is_abandoned_takes_its_sequences_with_it():
    """REP-093: when its time to finish is over."""
    sequencing = Sequencing(max_batch_size=1, hosts=2)
    sequencing.run("1.1", "2.1")
    removed = sequencing.hosts[0]
    finished = sequencing.pool.remove(removed)

    removed.is_ready = False
    removed.on_state_change()

    assert finished.done()
    assert "its instance 'm_0_0' ended" in sequencing.refusal("1.2").message
    sequencing.run("2.2")
    assert sequencing.rows() == ["1.1"]


def test_when_no_instance_is_left_everything_is_answered():
    """SCH-054."""
    sequencing = Sequencing(max_batch_size=1)
    sequencing.send("1.1", "2.1")

    sequencing.host.fail_for_good("it crashed")

    assert all("no working instance: it crashed" in text for _, text in sequencing.answers)
    assert len(sequencing.answers) == 2
    assert "no working instance" in sequencing.refusal("3.1").message
