"""Sequence batcher: rules for the client, slots and candidates, backlog, controls, ids."""

from __future__ import annotations

from typing import Any

from tests.conformance.side_by_side.drive import Call, Drive
from tests.conformance.side_by_side.scenario import Facts, scenario

_PROMPT_US = 1_200_000


async def done(drive: Drive, tag: str, flags: str, key: int | str, value: int, **more: Any) -> Call:
    call = drive.send(tag, **drive.step(flags, key, value, **more))
    await drive.answers(call)
    return call


async def queue(
    drive: Drive, tag: str, flags: str, key: int | str, value: int, **more: Any
) -> Call:
    return await drive.queue(tag, **drive.step(flags, key, value, **more))


async def _adds_up(drive: Drive, key: int | str) -> None:
    await done(drive, "first", "+", key, 3)
    await done(drive, "second", "", key, 4)
    await done(drive, "last", "-", key, 5)


@scenario("seq_direct")
async def controls_tell_start_end_and_id(drive: Drive) -> None:
    await _adds_up(drive, 7)


@scenario("seq_oldest")
async def controls_tell_start_end_and_id_to_oldest(drive: Drive) -> None:
    await _adds_up(drive, 7)


@scenario("seq_nobatch")
async def controls_of_a_model_without_batching(drive: Drive) -> None:
    for tag, flags, value in (("first", "+", 3), ("last", "-", 4)):
        await done(drive, tag, flags, 2**32 + 5, value, is_batched=False)


@scenario("seq_string", words=("string",))
async def ids_may_be_strings(drive: Drive) -> None:
    await _adds_up(drive, "a client's name")


@scenario("seq_bare")
async def controls_are_optional(drive: Drive) -> None:
    await _adds_up(drive, 7)


@scenario("seq_direct")
async def one_request_may_be_a_sequence(drive: Drive) -> None:
    await done(drive, "only", "+-", 7, 3)
    await done(drive, "again", "+-", 7, 4)


@scenario("seq_direct", words=("start flag",))
async def the_first_request_must_start(drive: Drive) -> None:
    await done(drive, "no start", "", 7, 1)
    await done(drive, "only end", "-", 7, 1)


@scenario("seq_direct", words=("start flag",))
async def after_the_end_a_new_start_is_needed(drive: Drive) -> None:
    await done(drive, "first", "+", 7, 1)
    await done(drive, "last", "-", 7, 2)
    await done(drive, "late", "", 7, 3)


@scenario("seq_direct", words=("correlation id",))
async def a_request_needs_an_id(drive: Drive) -> None:
    await drive.answers(drive.send("none", 1))
    await done(drive, "zero", "+", 0, 1)
    await done(drive, "empty", "+", "", 1)
    drive._sequences.clear()


@scenario("seq_direct", words=("batch-size 1",))
async def a_request_is_one_row(drive: Drive) -> None:
    await done(drive, "two rows", "+", 7, 1, rows=2)
    drive._sequences.clear()


@scenario("seq_string", words=("string", "unsigned int"))
async def ids_must_be_of_the_kind_of_the_control(drive: Drive) -> None:
    await done(drive, "number", "+", 7, 1)


@scenario("seq_direct", words=("string", "unsigned int"))
async def a_string_is_no_id_for_a_number(drive: Drive) -> None:
    await done(drive, "text", "+", "seven", 1)


@scenario("seq_string", words=("128",))
async def a_string_id_has_a_longest_length(drive: Drive) -> None:
    await done(drive, "fits", "+-", "x" * 128, 1)
    await done(drive, "too long", "+", "x" * 129, 1)
    drive._sequences.clear()


@scenario("default")
async def without_a_sequence_batcher_ids_mean_nothing(drive: Drive) -> None:
    await done(drive, "no start", "", 7, 1)
    await done(drive, "end", "-", 7, 1)


@scenario("seq_direct")
async def a_second_start_begins_anew(drive: Drive) -> None:
    await done(drive, "first", "+", 7, 3)
    await done(drive, "restart", "+", 7, 4)
    await done(drive, "last", "-", 7, 5)


@scenario("seq_direct")
async def a_restart_waits_for_what_is_queued(drive: Drive) -> None:
    await drive.block(**drive.step("+", 1))
    await queue(drive, "old", "+", 7, 3)
    await queue(drive, "old too", "", 7, 4)
    await queue(drive, "new", "+", 7, 5)
    await queue(drive, "new too", "-", 7, 6)


@scenario("seq_direct")
async def ready_slots_run_together_each_in_its_row(drive: Drive) -> None:
    await drive.block(**drive.step("+", 1))
    await queue(drive, "other", "+", 2, 3)
    await queue(drive, "same", "", 1, 4)
    await queue(drive, "other too", "", 2, 5)


@scenario("seq_direct")
async def a_slot_without_a_request_is_not_ready(drive: Drive) -> None:
    await done(drive, "one", "+", 1, 1)
    await done(drive, "two", "+", 2, 2)
    await done(drive, "two again", "", 2, 3)
    await done(drive, "one again", "-", 1, 4)


@scenario("seq_direct_two")
async def a_sequence_stays_on_its_instance(drive: Drive) -> Facts:
    one = [await done(drive, "one", "+", 1, 1)]
    two = [await done(drive, "two", "+", 2, 1)]
    for number in range(3):
        two.append(await done(drive, f"two {number}", "", 2, 1))
        one.append(await done(drive, f"one {number}", "", 1, 1))
    places = [{call.responses[0]["RAN"][0][0] for call in calls} for calls in (one, two)]
    return {"instances": [len(place) for place in places], "apart": places[0] != places[1]}


@scenario("seq_direct")
async def sequences_beyond_the_slots_wait(drive: Drive) -> None:
    await done(drive, "one", "+", 1, 1)
    await done(drive, "two", "+", 2, 2)
    await queue(drive, "three", "+", 3, 3)
    await queue(drive, "three too", "", 3, 4)
    await queue(drive, "four", "+-", 4, 5)
    await done(drive, "two again", "", 2, 6)
    await done(drive, "two ends", "-", 2, 7)
    await done(drive, "three ends", "-", 3, 8)


@scenario("seq_oldest_two")
async def sequences_beyond_the_candidates_wait(drive: Drive) -> None:
    await done(drive, "one", "+", 1, 1)
    await done(drive, "two", "+", 2, 2)
    calls = [
        await queue(drive, "three", "+", 3, 3),
        await queue(drive, "three too", "-", 3, 4),
        await queue(drive, "four", "+-", 4, 5),
    ]
    await done(drive, "two ends", "-", 2, 7)
    await drive.answers(*calls)
    await done(drive, "one ends", "-", 1, 8)


@scenario("seq_direct", words=("timeout of the corresponding sequence",))
async def a_timeout_holds_in_the_backlog(drive: Drive) -> None:
    await done(drive, "one", "+", 1, 1)
    await done(drive, "two", "+", 2, 2)
    await queue(drive, "three", "+", 3, 3, timeout=150_000)
    await queue(drive, "three too", "", 3, 4)
    await drive.sleep(0.6 / drive.patience)
    await done(drive, "two ends", "-", 2, 5)


@scenario("seq_idle", words=("start flag",))
async def an_idle_sequence_loses_its_slot(drive: Drive) -> None:
    await done(drive, "one", "+", 1, 1)
    await done(drive, "two", "+", 2, 2)
    await done(drive, "late", "", 1, 3)


@scenario("seq_direct", words=("start flag",))
async def a_cancellation_ends_what_waits_of_the_sequence(drive: Drive) -> None:
    await done(drive, "other", "+", 2, 1)
    await drive.block(ms=400, **drive.step("+", 1))
    gone = await queue(drive, "gone", "", 2, 2)
    await queue(drive, "too", "", 2, 3)
    gone.cancel()
    await drive.sleep(0.1)
    drive.still_blocked()
    await drive.answers()
    await done(drive, "after", "", 2, 4)


@scenario("seq_wait")
async def few_ready_slots_wait_for_the_delay(drive: Drive) -> Facts:
    call = await done(drive, "alone", "+-", 1, 1)
    return {"waited": call.ended_us - call.sent_us > _PROMPT_US}


@scenario("seq_wait")
async def enough_ready_slots_go_at_once(drive: Drive) -> Facts:
    calls = [drive.send(tag, **drive.step("+-", key)) for tag, key in (("a", 1), ("b", 2))]
    await drive.answers()
    waited = max(call.ended_us - call.sent_us for call in calls) > _PROMPT_US
    return {"waited": waited, "executions": sorted(c.responses[0]["RAN"][0][3] for c in calls)}


@scenario("seq_oldest")
async def oldest_takes_one_request_of_each_sequence(drive: Drive) -> None:
    await drive.block(**drive.step("+", 1))
    await queue(drive, "b", "+", 2, 1)
    await queue(drive, "b too", "", 2, 2)
    await queue(drive, "c", "+", 3, 3)
    await queue(drive, "b three", "-", 2, 4)
    await queue(drive, "c too", "-", 3, 5)


@scenario("seq_oldest")
async def oldest_goes_by_age(drive: Drive) -> None:
    for key in (1, 2, 3, 4):
        await done(drive, f"start {key}", "+", key, key)
    await drive.block(**drive.step("", 1))
    await queue(drive, "four", "", 4, 1)
    await queue(drive, "two", "", 2, 1)
    await queue(drive, "three", "", 3, 1)


@scenario("seq_oldest_wait")
async def a_preferred_number_of_sequences_goes_at_once(drive: Drive) -> Facts:
    calls = [drive.send(str(key), **drive.step("+-", key)) for key in (1, 2, 3)]
    await drive.answers()
    waited = max(call.ended_us - call.sent_us for call in calls) > _PROMPT_US
    return {"waited": waited, "executions": sorted(c.responses[0]["RAN"][0][3] for c in calls)}


@scenario("seq_oldest_wait")
async def fewer_sequences_wait_for_the_delay(drive: Drive) -> Facts:
    call = await done(drive, "alone", "+-", 1, 1)
    return {"waited": call.ended_us - call.sent_us > _PROMPT_US}


@scenario("seq_shapes")
async def sequences_of_different_shapes_run_apart(drive: Drive) -> None:
    await drive.block(**drive.step("+", 1))
    await queue(drive, "b", "+-", 2, 0, inputs={"INPUT0": ("INT32", [[0, 1]])})
    await queue(drive, "c", "+-", 3, 0, inputs={"INPUT0": ("INT32", [[0, 1, 1]])})
    await queue(drive, "d", "+-", 4, 0, inputs={"INPUT0": ("INT32", [[0, 1]])})


@scenario("seq_oldest_order")
async def oldest_may_keep_the_order_of_requests(drive: Drive) -> None:
    await drive.block("slow", **drive.step("+-", 1))
    drive.send("quick", **drive.step("+-", 2))
    await drive.answers()


@scenario("seq_iterative")
async def an_iterative_request_runs_until_it_is_done(drive: Drive) -> None:
    one = {"INPUT0": ("INT32", [[3]])}
    await drive.answers(drive.stream("three", inputs=one))
    await drive.answers(drive.stream("with an id", inputs=one, sequence_id=9))


@scenario("seq_iterative")
async def iterative_requests_share_the_instance(drive: Drive) -> None:
    drive.stream("three", inputs={"INPUT0": ("INT32", [[3]])})
    drive.stream("five", inputs={"INPUT0": ("INT32", [[5]])})


@scenario("seq_state")
async def state_of_a_python_model(drive: Drive) -> None:
    for tag, flags, value in (("first", "+", 3), ("second", "", 4), ("last", "-", 5)):
        await done(drive, tag, flags, 7, value)
