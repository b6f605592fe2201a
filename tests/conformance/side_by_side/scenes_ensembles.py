"""Ensembles: the flow of tensors, batching inside parts, errors, and what is passed on."""

from __future__ import annotations

from typing import Any

from tests.conformance.side_by_side.drive import Call, Drive
from tests.conformance.side_by_side.scenario import Facts, scenario

_SERIAL_US = 1_400_000


def ask(drive: Drive, tag: str, outputs: tuple[str, ...] = (), **values: int) -> Call:
    inputs: dict[str, Any] = {name: ("INT32", [[value]]) for name, value in values.items()}
    return drive.send(tag, inputs=inputs, outputs=outputs)


@scenario("ens_chain", "part_chain_a", "part_chain_b")
async def tensors_flow_from_step_to_step(drive: Drive) -> None:
    await drive.answers(ask(drive, "all", A=5, B=2))
    await drive.answers(ask(drive, "last", ("OUT",), A=5, B=2))


@scenario("ens_chain", "part_chain_a", "part_chain_b")
async def steps_that_nobody_asked_for_do_not_run(drive: Drive) -> None:
    await drive.answers(ask(drive, "middle", ("MIDDLE",), A=5, B=2))


@scenario("ens_chain", words=("input", "output", "batch-size"))
async def inputs_and_outputs_are_checked_as_of_any_model(drive: Drive) -> None:
    await drive.answers(ask(drive, "no B", A=5))
    await drive.answers(ask(drive, "unknown output", ("NOPE",), A=5, B=2))
    await drive.answers(ask(drive, "unknown input", A=5, B=2, C=1))
    five = {"A": ("INT32", [[1]] * 5), "B": ("INT32", [[1]] * 5)}
    await drive.answers(drive.send("too many rows", inputs=five))


@scenario("ens_chain", "part_chain_a", "part_chain_b", words=("thirteen is refused",))
async def the_error_of_a_step_is_the_answer(drive: Drive) -> None:
    await drive.answers(ask(drive, "first step", A=13, B=2))
    await drive.answers(ask(drive, "second step", A=6, B=7))


@scenario("ens_wide", "part_wide_slow", "part_wide_slow_too", "part_wide_fast")
async def independent_steps_run_at_the_same_time(drive: Drive) -> Facts:
    call = ask(drive, "all", A=3)
    await drive.answers()
    return {"serial": call.ended_us - call.sent_us > _SERIAL_US}


@scenario("ens_wide", "part_wide_slow", "part_wide_slow_too", "part_wide_fast")
async def branches_that_nobody_asked_for_do_not_run(drive: Drive) -> None:
    await drive.answers(ask(drive, "fast", ("FAST",), A=3))
    await drive.answers(ask(drive, "fast and left", ("FAST", "LEFT"), A=3))


@scenario("ens_optional", "part_left_a")
async def an_optional_input_may_be_left_out(drive: Drive) -> None:
    await drive.answers(ask(drive, "with", A=5, B=2))
    await drive.answers(ask(drive, "without", A=5))


@scenario("ens_nested", "ens_chain", "part_chain_a", "part_nested_b")
async def an_ensemble_may_be_a_part(drive: Drive) -> None:
    await drive.answers(ask(drive, "nested", A=5, B=2))


@scenario("ens_dead", "part_dead_a", "part_dead_b", words=("unexpected deadlock", "part_dead_b"))
async def a_missing_tensor_is_a_dead_end(drive: Drive) -> None:
    await drive.answers(ask(drive, "whole", A=5))
    await drive.answers(ask(drive, "dead", A=14))


@scenario("ens_repeat", "repeat_part", "part_single")
async def every_answer_of_a_decoupled_part_goes_on(drive: Drive) -> None:
    for wanted in (3, 1, 0):
        inputs = {"A": ("INT32", [wanted])}
        await drive.answers(drive.stream(f"{wanted} answers", inputs=inputs))


@scenario("ens_repeat", words=("decoupled", "it broke off"))
async def an_ensemble_with_a_decoupled_part_is_decoupled(drive: Drive) -> None:
    await drive.answers(drive.send("unary", inputs={"A": ("INT32", [1])}))
    await drive.answers(drive.stream("error", inputs={"A": ("INT32", [-1])}))


@scenario("part_record", "ens_record")
async def requests_are_batched_inside_the_parts(drive: Drive) -> None:
    await drive.block()
    for number, tag in enumerate("abc"):
        drive.send(tag, model="ens_record")
        await drive.wait_for_pending(number + 1)


@scenario("part_record", "ens_record", words=("timeout expired",))
async def priority_and_timeout_are_passed_on(drive: Drive) -> None:
    await drive.block(ms=400)
    late = {"model": "ens_record", "timeout": 100_000}
    for number, options in enumerate(({"priority": 2, "rows": 8}, {"priority": 1, "rows": 8})):
        drive.send(f"{options['priority']}", model="ens_record", **options)
        await drive.wait_for_pending(number + 1)
    drive.send("late", **late)
    await drive.wait_for_pending(3)
    await drive.sleep(0.15 / drive.patience)


@scenario("ens_sequence", "part_sequence", words=("start flag", "correlation id"))
async def flags_of_a_sequence_are_passed_on(drive: Drive) -> None:
    for tag, flags, value in (("first", "+", 3), ("second", "", 4), ("last", "-", 5)):
        await drive.answers(drive.send(tag, **drive.step(flags, 7, value)))
    await drive.answers(drive.send("no start", **drive.step("", 8, 1)))
    await drive.answers(drive.send("no id", 1))


@scenario("ens_late", "part_late_slow", "part_late_b", words=("cancel",))
async def a_cancelled_request_starts_no_further_step(drive: Drive) -> None:
    gone = ask(drive, "gone", A=3)
    await drive.sleep(0.1 / drive.patience)
    gone.cancel()
    await drive.answers()
    await drive.sleep(0.6)


@scenario("ens_cached", "part_cached_a")
async def a_hit_skips_all_steps(drive: Drive) -> None:
    await drive.answers(ask(drive, "miss", A=101))
    await drive.answers(ask(drive, "hit", A=101))
    await drive.answers(ask(drive, "other", A=102))
