"""Default scheduler and dynamic batcher: what runs together, and in which order."""

from __future__ import annotations

from typing import Any

from tests.conformance.side_by_side.drive import Drive
from tests.conformance.side_by_side.scenario import Facts, scenario

_PROMPT_US = 1_200_000


async def fill(drive: Drive, *tags: str, rows: int = 1) -> None:
    for tag in tags:
        await drive.queue(tag, rows=rows)


@scenario("default")
async def without_a_scheduler_every_request_runs_alone(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a")
    await drive.queue("b", rows=3)
    await drive.queue("c")


@scenario("default_two")
async def two_instances_run_in_parallel(drive: Drive) -> None:
    await drive.block("slow")
    await drive.answers(drive.send("quick"))
    await drive.answers(drive.send("quicker"))
    drive.still_blocked()


@scenario("default_nobatch")
async def model_that_does_not_batch_takes_no_batch_axis(drive: Drive) -> None:
    await drive.answers(drive.send("a", 7, is_batched=False))
    await drive.answers(drive.send("b", 7))


@scenario("batch")
async def what_waits_runs_together(drive: Drive) -> None:
    await drive.block()
    await fill(drive, "a", "b", "c")


@scenario("batch")
async def a_batch_never_exceeds_max_batch_size(drive: Drive) -> None:
    await drive.block()
    await fill(drive, *"abcdefghij")


@scenario("batch")
async def a_request_is_never_split(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a", rows=3)
    await drive.queue("b", rows=3)
    await drive.queue("c", rows=3)
    await drive.queue("d", rows=8)
    await drive.queue("e", rows=1)


@scenario("batch", words=("this request alone fails",))
async def one_bad_request_fails_alone(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a")
    await drive.queue("bad", -1)
    await drive.queue("c")


@scenario("batch", words=("the whole execution fails",))
async def an_exception_fails_the_batch_and_no_other(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a")
    await drive.queue("bad", -2)
    await drive.queue("c")
    await drive.answers()
    await drive.answers(drive.send("next"))


@scenario("batch")
async def too_few_answers_fail_the_batch(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a")
    await drive.queue("bad", -3)


@scenario("batch_shapes")
async def another_shape_closes_the_batch(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a", 1)
    await drive.queue("b", 2)
    await drive.queue("c", 3, 3)
    await drive.queue("d", 4)


@scenario("batch_shapes")
async def empty_tensors_are_batched_too(drive: Drive) -> None:
    await drive.block()
    empty: dict[str, tuple[Any, ...]] = {"INPUT0": ("INT32", [[]])}
    await drive.queue("a", inputs=empty)
    await drive.queue("b", inputs=empty)


@scenario("batch_ragged")
async def ragged_inputs_may_differ_in_shape(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a", 1)
    await drive.queue("b", 2, 3)
    await drive.queue("c", 4, 5, 6)


@scenario("batch_optional")
async def another_set_of_optional_inputs_closes_the_batch(drive: Drive) -> None:
    await drive.block()
    both = {"INPUT0": ("INT32", [[0, 1]]), "EXTRA": ("INT32", [[5]])}
    await drive.queue("a", 1)
    await drive.queue("b", inputs=both)
    await drive.queue("c", inputs=both)
    await drive.queue("d", 1)


@scenario("batch_delay", are_sent_at_once=True)
async def a_batch_waits_for_its_delay(drive: Drive) -> Facts:
    calls = [drive.send(tag) for tag in "abc"]
    await drive.answers()
    return {"waited": min(call.ended_us - call.sent_us for call in calls) > _PROMPT_US}


@scenario("batch_delay")
async def a_preferred_size_goes_at_once(drive: Drive) -> Facts:
    blocker = await drive.block(rows=4)
    await fill(drive, *"abcd")
    await drive.answers()
    late = max(call.ended_us for call in drive.calls) - blocker.ended_us
    return {"waited": late > _PROMPT_US}


@scenario("batch_delay")
async def sizes_that_miss_the_preferred_one_go_when_they_exceed_it(drive: Drive) -> None:
    await drive.block(rows=4)
    await drive.queue("a", rows=3)
    await drive.queue("b", rows=3)
    await drive.queue("c", rows=1)


@scenario("batch_delay_max")
async def a_full_batch_does_not_wait(drive: Drive) -> Facts:
    calls = [drive.send(str(number)) for number in range(8)]
    await drive.answers()
    sizes = sorted(call.responses[0]["RAN"][0][3] for call in calls)
    return {
        "executions": sizes,
        "waited": max(call.ended_us - call.sent_us for call in calls) > _PROMPT_US,
        "answers": {},
    }


@scenario("batch_preferred")
async def the_largest_preferred_size_in_reach_is_taken(drive: Drive) -> None:
    await drive.block()
    await fill(drive, *"abcdefghi")


@scenario("batch_preferred")
async def what_is_left_over_goes_without_a_delay(drive: Drive) -> None:
    await drive.block()
    await fill(drive, *"abc")


@scenario("order_kept")
async def answers_keep_the_order_of_the_requests(drive: Drive) -> None:
    await drive.block("slow")
    drive.send("quick")
    await drive.sleep(0.05)
    drive.send("quicker")
    await drive.sleep(0.05)
    drive.still_blocked()


@scenario("order_free")
async def without_preserve_ordering_the_quick_come_first(drive: Drive) -> None:
    await drive.block("slow")
    drive.send("quick")
    await drive.sleep(0.05)
    drive.send("quicker")
    await drive.sleep(0.05)
    drive.still_blocked()


@scenario("batch", words=("cancel",))
async def what_is_cancelled_in_the_queue_never_runs(drive: Drive) -> None:
    await drive.block(ms=350)
    await drive.queue("a")
    gone = await drive.queue("gone")
    await drive.queue("c")
    gone.cancel()
    await drive.sleep(0.1)
    drive.still_blocked()


@scenario("default", words=("cancel",))
async def the_default_queue_forgets_what_is_cancelled(drive: Drive) -> None:
    await drive.block(ms=350)
    await drive.queue("a")
    gone = await drive.queue("gone")
    await drive.queue("c")
    gone.cancel()
    await drive.sleep(0.1)
    drive.still_blocked()


@scenario("warm")
async def warm_up_runs_every_sample_before_the_first_request(drive: Drive) -> Facts:
    call = drive.send("first")
    await drive.answers()
    return {"executions before": call.responses[0]["RAN"][0][1] - 1}
