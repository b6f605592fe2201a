"""Rate limiter, and the hooks that hold schedulers for tests."""

from __future__ import annotations

import numpy as np

from tests.conformance.side_by_side.drive import Call, Drive
from tests.conformance.side_by_side.scenario import Facts, scenario


def most_at_once(calls: list[Call]) -> int:
    """Executions that overlapped in time."""
    spans = [np.array(call.responses[0]["RAN"]).reshape(-1)[-2:] for call in calls]
    return max(sum(bool(start <= moment < end) for start, end in spans) for moment, _ in spans)


async def together(drive: Drive, count: int, *models: str) -> Facts:
    calls = []
    for number in range(count):
        model = models[number % len(models)] if models else ""
        calls.append(drive.send(str(number), model=model, ms=round(300 * drive.patience)))
    await drive.answers()
    return {"executions": [], "at once": most_at_once(calls)}


@scenario("rate_free", stand="limited")
async def without_resources_all_instances_run(drive: Drive) -> Facts:
    return await together(drive, 4)


@scenario("rate_one", stand="limited")
async def instances_of_one_model_share_its_resource(drive: Drive) -> Facts:
    return await together(drive, 3)


@scenario("rate_shared", "rate_shared_too", stand="limited")
async def models_share_a_global_resource_whatever_its_case(drive: Drive) -> Facts:
    return await together(drive, 4, "rate_shared", "rate_shared_too")


@scenario("rate_pool", stand="limited")
async def a_pool_is_as_large_as_the_largest_demand(drive: Drive) -> Facts:
    return await together(drive, 3)


@scenario("rate_pool", stand="pool")
async def a_pool_of_two_lets_two_run(drive: Drive) -> Facts:
    return await together(drive, 4)


@scenario("rate_one", stand="plain")
async def without_the_option_resources_mean_nothing(drive: Drive) -> Facts:
    return await together(drive, 4)


@scenario("rate_often", "rate_seldom", stand="limited")
async def a_priority_of_two_gets_half_the_turns(drive: Drive) -> None:
    await drive.block(ms=500)
    for number in range(1, 5):
        await drive.queue(f"often {number}", ms=20)
        await drive.queue(f"seldom {number}", ms=20, model="rate_seldom")


@scenario("held", stand="held")
async def the_dynamic_batcher_holds_until_enough_wait(drive: Drive) -> None:
    for tag in "abc":
        await drive.queue(tag)
    await drive.sleep(0.2)
    drive.send("d")


@scenario("held_direct", stand="held")
async def direct_slots_hold_until_enough_wait(drive: Drive) -> None:
    await drive.queue("a", **drive.step("+", 1, 1))
    await drive.queue("b", **drive.step("+", 2, 1))
    await drive.queue("a too", **drive.step("-", 1, 1))
    await drive.sleep(0.2)
    await drive.answers(drive.send("b too", **drive.step("-", 2, 1)))


@scenario("backlog_direct", stand="backlog")
async def direct_slots_hold_until_the_backlog_is_filled(drive: Drive) -> None:
    for tag, key in (("a", 1), ("b", 2), ("c", 3)):
        await drive.queue(tag, **drive.step("+-", key, 1))
    await drive.sleep(0.2)
    await drive.answers(drive.send("d", **drive.step("+-", 4, 1)))
