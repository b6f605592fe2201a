"""`max_inflight_requests`: how many requests a step has at its model at once. Spec SCH-084."""

from __future__ import annotations

import logging

import pytest

from serving.errors import ErrorCode, InternalError, QueueRejectedError
from serving.scheduling.ensemble import LONGEST_WAIT_S
from tests.serving.scheduling.ensemble_bench import Bench, array, step, tensors

CHAIN = (step("a", {"X": "A"}, {"P": "m"}), step("b", {"X": "m"}, {"P": "B"}))
ONE = step("a", {"X": "A"}, {"P": "B"})


def limited(*steps: str, limit: int = 2) -> Bench:
    return Bench(*steps, f"max_inflight_requests: {limit}")


def test_sch_084_step_has_no_more_requests_at_its_model_than_the_limit():
    bench = limited(ONE)
    for number in range(4):
        bench.send({"A": array(number)})
    assert len(bench["a"].requests) == 2
    assert bench.scheduler.queued_count == 2

    bench["a"].answer({"P": array(0)})

    assert [request.inputs["X"].array[0] for request in bench["a"].requests] == [1, 2]
    assert bench.scheduler.queued_count == 1


def test_sch_084_without_a_limit_nothing_waits():
    bench = limited(ONE, limit=0)
    for _ in range(1000):
        bench.send()
    assert len(bench["a"].requests) == 1000


def test_sch_084_every_step_has_its_own_limit():
    bench = limited(*CHAIN, limit=1)
    bench.send()
    bench["a"].answer({"P": array(1)})
    bench.send()
    assert (len(bench["a"].requests), len(bench["b"].requests)) == (1, 1)
    bench["a"].answer({"P": array(1)})
    assert (bench["b"].count, bench.scheduler.queued_count) == (1, 1)


def test_sch_084_response_of_a_decoupled_step_waits_for_its_turn_too():
    bench = Bench(
        step("d", {"X": "A"}, {"P": "m"}),
        step("b", {"X": "m"}, {"P": "B"}),
        "max_inflight_requests: 1",
        outputs=tensors("output", "B"),
        extra="model_transaction_policy { decoupled: true }",
    )
    bench.add("d", is_decoupled=True)
    sent = bench.send()
    for number in range(3):
        bench["d"].answer({"P": array(number)}, is_final=False)
    bench["d"].answer()
    assert len(bench["b"].requests) == 1

    for number in range(3):
        assert len(bench["b"].requests) == 1
        bench["b"].answer({"P": array(number)})

    assert len(sent.responses) == 3
    assert sent.is_answered


def test_sch_084_wait_ends_when_another_step_of_the_request_fails():
    wide = (step("a", {"X": "A"}, {"P": "B"}), step("b", {"X": "A"}, {"P": "C"}))
    bench = Bench(*wide, "max_inflight_requests: 1", outputs=tensors("output", "B", "C"))
    bench.send()
    bench["a"].answer({"P": array(1)})
    sent = bench.send()
    assert bench.scheduler.queued_count == 1

    bench["a"].answer(error=InternalError("it broke"))

    assert "it broke" in sent.error.message
    bench["b"].answer({"P": array(1)})
    assert bench["b"].count == 1


def test_sch_084_wait_ends_with_a_cancellation_at_once():
    bench = limited(ONE, limit=1)
    bench.send()
    sent = bench.send()
    sent.request.cancel()
    assert sent.error.code is ErrorCode.CANCELLED
    assert bench.scheduler.queued_count == 0
    bench["a"].answer({"P": array(1)})
    assert bench["a"].count == 1


def test_sch_084_step_that_has_waited_for_300_s_runs_with_an_error_in_the_log(caplog):
    bench = limited(ONE, limit=1)
    bench.send()
    bench.clock.advance_us(1_000_000)
    bench.send()
    bench.clock.advance_us(1_000_000)
    bench.send()
    bench.clock.advance_us((LONGEST_WAIT_S - 1) * 1_000_000 - 1)
    assert len(bench["a"].requests) == 1

    with caplog.at_level(logging.ERROR):
        bench.clock.advance_us(1)

    assert len(bench["a"].requests) == 2
    (record,) = caplog.records
    assert "step 0 of model 'a' has waited for 300 s" in record.getMessage()
    bench.clock.advance_us(1_000_000)
    assert len(bench["a"].requests) == 3
    assert bench.scheduler.queued_count == 0


def test_sch_084_thousands_that_wait_for_a_part_that_refuses_all_end():
    bench = limited(ONE, limit=1)
    sent = [bench.send() for _ in range(5000)]
    bench["a"].refusal = QueueRejectedError("full")
    bench["a"].answer({"P": array(1)})
    assert all(item.is_answered for item in sent)
    assert bench.scheduler.inflight_count == 0


@pytest.mark.parametrize("index", [0, 1])
def test_sch_084_cancelled_turn_is_given_to_the_next(index):
    bench = limited(ONE, limit=1)
    bench.send()
    waiting = [bench.send({"A": array(number)}) for number in range(2)]
    waiting[index].request.cancel()
    bench["a"].answer({"P": array(1)})
    assert bench["a"].inputs["X"].tolist() == [1 - index]
