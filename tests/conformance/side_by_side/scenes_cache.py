"""The response cache. The servers must have been started afresh."""

from __future__ import annotations

from tests.conformance.side_by_side.drive import Call, Drive
from tests.conformance.side_by_side.scenario import Facts, scenario


async def ask(drive: Drive, tag: str, value: int, **options: object) -> Call:
    call = drive.send(tag, value, **options)
    await drive.answers(call)
    return call


def is_same(first: Call, second: Call) -> bool:
    return first.responses[0].get("RAN") == second.responses[0].get("RAN")


@scenario("cached")
async def the_same_request_is_answered_from_the_cache(drive: Drive) -> Facts:
    first = await ask(drive, "miss", 1)
    second = await ask(drive, "hit", 1)
    await ask(drive, "other", 2)
    return {"same": is_same(first, second)}


@scenario("cached_default")
async def the_cache_works_without_a_batcher(drive: Drive) -> Facts:
    return {"same": is_same(await ask(drive, "miss", 1), await ask(drive, "hit", 1))}


@scenario("cached")
async def a_hit_does_not_wait_in_the_queue(drive: Drive) -> Facts:
    await ask(drive, "miss", 3)
    blocker = await drive.block(ms=1000)
    await drive.answers(drive.send("hit", 3))
    return {"waited": blocker.is_done}


@scenario("cached")
async def the_batch_size_is_part_of_the_key(drive: Drive) -> None:
    await ask(drive, "one row", 4)
    await ask(drive, "two rows", 4, rows=2)
    await ask(drive, "two rows again", 4, rows=2)


@scenario("cached")
async def parameters_and_ids_are_not_part_of_the_key(drive: Drive) -> None:
    await ask(drive, "miss", 5)
    await ask(drive, "hit", 5, priority=0)


@scenario("cached", words=("this request alone fails",))
async def errors_are_not_kept(drive: Drive) -> None:
    await ask(drive, "error", -1)
    await ask(drive, "error again", -1)


@scenario("cached")
async def another_list_of_outputs(drive: Drive) -> None:
    await ask(drive, "all", 6)
    await ask(drive, "one", 6, outputs=("OUTPUT0",))
    await ask(drive, "the other", 7, outputs=("RAN",))
    await ask(drive, "all again", 7)


@scenario("default")
async def other_models_have_no_cache(drive: Drive) -> None:
    await ask(drive, "first", 8)
    await ask(drive, "second", 8)
