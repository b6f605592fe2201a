"""Which models answer an ensemble request, how long they are held, and what comes of the parts.
Spec SCH-092, SCH-094.
"""

from __future__ import annotations

import asyncio

import pytest

from serving.errors import QueueRejectedError, UnavailableError
from tests.serving.scheduling.ensemble_bench import Bench, array, step, tensors, values

CHAIN = (step("a", {"X": "A"}, {"P": "m"}), step("b", {"X": "m"}, {"P": "B"}))
TWO_OUTPUTS = tensors("output", "B", "C")
FORK = (
    step("a", {"X": "A"}, {"P": "m", "Q": "B"}),
    step("b", {"X": "m"}, {"P": "n"}),
    step("c", {"X": "n"}, {"P": "C"}),
)


def test_request_keeps_the_parts_that_it_started_with():
    bench = Bench(step("a", {"X": "A"}, {"P": "m"}), step("a", {"X": "m"}, {"P": "B"}))
    old = bench["a"]
    sent = bench.send()
    new = bench.add("a", version=2)

    old.answer({"P": array(1)})
    assert len(old.requests) == 1
    assert not new.requests
    old.answer({"P": array(2)})

    assert sent.outputs == {"B": [2.0]}
    bench.send()
    assert len(new.requests) == 1


def test_parts_are_held_open_until_the_request_has_ended():
    bench = Bench(*CHAIN)
    bench.send()
    assert [part.leases.count for part in bench.parts.values()] == [1, 1, 0]
    bench["a"].answer({"P": array(1)})
    assert [part.leases.count for part in bench.parts.values()] == [1, 1, 0]
    bench["b"].answer({"P": array(1)})
    assert [part.leases.count for part in bench.parts.values()] == [0, 0, 0]


def test_parts_of_an_inner_ensemble_are_kept_and_held_open_from_the_start():
    inner = Bench(step("a", {"X": "A"}, {"P": "B"}))
    outer = Bench(step("b", {"X": "A"}, {"P": "m"}), step("inner", {"A": "m"}, {"B": "B"}))
    outer.add("inner").ensemble = inner.scheduler
    old = inner["a"]

    sent = outer.send()
    assert old.leases.count == 1
    del inner.parts["a"]
    outer["b"].answer({"P": array(1)})
    assert old.leases.count == 2
    old.answer({"P": array(2)})

    assert sent.outputs == {"B": [2.0]}
    assert old.leases.count == 0


def test_readiness_is_that_of_the_parts():
    bench = Bench(*CHAIN)
    assert bench.scheduler.unready_reason == ""
    bench["b"].unready_reason = "its process has died"
    assert bench.scheduler.unready_reason == (
        "model 'b' of step 1 is not ready: its process has died"
    )
    del bench.parts["a"]
    assert "step 0 of model 'a' cannot run" in bench.scheduler.unready_reason


def test_sch_094_labels_are_those_of_the_part_that_makes_the_output():
    bench = Bench(*FORK, outputs=TWO_OUTPUTS)
    bench["c"].labels = {"P": ["cat", "dog"]}
    assert bench.scheduler.labels_of("C") == ["cat", "dog"]
    assert bench.scheduler.labels_of("B") == []
    del bench.parts["c"]
    assert bench.scheduler.labels_of("C") == []


# Stopping


async def test_stop_refuses_new_requests_and_waits_for_those_that_run():
    bench = Bench(*CHAIN)
    sent = bench.send()
    stopping = asyncio.ensure_future(bench.scheduler.stop())
    await asyncio.sleep(0)

    with pytest.raises(QueueRejectedError, match="is being unloaded"):
        bench.send()
    bench["a"].answer({"P": array(1)})
    assert not stopping.done()
    bench["b"].answer({"P": array(1)})
    await stopping
    assert sent.error is None


async def test_abandoned_requests_start_nothing_more_and_cancel_what_runs():
    bench = Bench(*CHAIN)
    sent = bench.send()
    stopping = asyncio.ensure_future(bench.scheduler.stop())
    await asyncio.sleep(0)

    bench.scheduler.abandon(UnavailableError("over"))
    await stopping
    assert bench["a"].requests[0].is_cancelled
    bench["a"].answer({"P": array(1)})

    assert bench["b"].count == 0
    assert sent.error.message == "over"
    assert values(sent.responses[0]) == {}
