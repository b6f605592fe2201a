"""Models that answer any number of times."""

from __future__ import annotations

from tests.conformance.side_by_side.drive import Call, Drive
from tests.conformance.side_by_side.scenario import Facts, scenario


def ask(drive: Drive, tag: str, wanted: int, ms: int = 0) -> Call:
    shape = [[wanted]] if drive.model == "repeat_batch" else [wanted]
    pause = [[ms]] if drive.model == "repeat_batch" else [ms]
    inputs = {"INPUT0": ("INT32", shape), "MS": ("INT32", pause)}
    return drive.stream(tag, inputs=inputs)


@scenario("repeat")
async def every_answer_comes_in_order(drive: Drive) -> None:
    await drive.answers(ask(drive, "three", 3))
    await drive.answers(ask(drive, "none", 0))
    await drive.answers(ask(drive, "end in the answer", -3))


@scenario("repeat", words=("it broke off",))
async def an_error_is_an_answer(drive: Drive) -> None:
    await drive.answers(ask(drive, "at once", -1))
    await drive.answers(ask(drive, "after one", -2))


@scenario("repeat", words=("decoupled",))
async def a_single_answer_cannot_be_asked_for(drive: Drive) -> None:
    call = drive.send("unary", inputs={"INPUT0": ("INT32", [3])})
    await drive.answers(call)


@scenario("repeat")
async def later_requests_may_end_first(drive: Drive) -> Facts:
    long = ask(drive, "long", 3, ms=round(150 * drive.patience))
    await drive.sleep(0.05)
    short = ask(drive, "short", 2)
    await drive.answers()
    return {"later first": short.ended_us < long.ended_us}


@scenario("repeat_batch")
async def a_batch_may_answer_each_request_differently(drive: Drive) -> None:
    for wanted in (2, 0, 3):
        await drive.answers(ask(drive, f"{wanted} answers", wanted))


@scenario("repeat")
async def a_cancelled_request_stops_the_model(drive: Drive) -> Facts:
    call = ask(drive, "gone", 100, ms=50)
    await drive.sleep(0.2)
    call.cancel()
    await drive.answers()
    few = len(call.responses) < 20
    call.responses.clear()
    await drive.sleep(0.2)
    return {"few": few}
