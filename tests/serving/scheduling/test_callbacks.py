"""Callers that act on others' requests in the middle of their own answers."""

from __future__ import annotations

from serving.request import InferenceRequest
from serving.response import InferenceResponse
from tests.serving.scheduling.hosts import Batching


def cancelling(batching: Batching, victims: list[InferenceRequest]) -> None:
    """From now on whoever hears of a failure cancels all others."""
    inner = batching._deliver

    def deliver(request: InferenceRequest, response: InferenceResponse) -> None:
        inner(request, response)
        for victim in victims:
            if victim is not request:
                victim.cancel()

    for victim in victims:
        victim.deliver = deliver


async def test_a_failure_of_all_instances_reaches_callers_that_cancel_each_other():
    batching = Batching()
    batching.send("running", rows=8)
    batching.turn()
    waiting = [batching.send(name) for name in "abc"]
    cancelling(batching, waiting)

    batching.host.fail_for_good("it died")

    assert sorted(name for name, _ in batching.answers) == ["a", "b", "c"]
    assert batching.batcher.queued_count == 0


async def test_an_expiry_reaches_callers_that_cancel_each_other():
    timeout = "default_timeout_microseconds: 100"
    batching = Batching(f"default_queue_policy {{ {timeout} }}")
    batching.send("running", rows=8)
    batching.turn()
    waiting = [batching.send(name) for name in "abc"]
    cancelling(batching, waiting)

    batching.clock.advance_us(200)

    assert sorted(name for name, _ in batching.answers) == ["a", "b", "c"]
    assert all("timeout expired" in text for _, text in batching.answers)
