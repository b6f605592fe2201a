"""Priorities and queue policies."""

from __future__ import annotations

from tests.conformance.side_by_side.drive import Drive
from tests.conformance.side_by_side.scenario import Facts, scenario

_EXPIRED = ("timeout expired",)
_FULL = ("exceeds maximum queue size",)


@scenario("priority")
async def higher_priorities_come_first(drive: Drive) -> None:
    await drive.block(ms=350)
    for tag, priority in {"low": 3, "mid": 2, "high": 1, "default": 0, "high too": 1}.items():
        await drive.queue(tag, priority=priority)


@scenario("priority")
async def a_priority_beyond_the_levels_is_the_default_one(drive: Drive) -> None:
    await drive.block()
    for tag, priority in {"low": 3, "beyond": 9, "high": 1, "mid": 2}.items():
        await drive.queue(tag, priority=priority)


@scenario("priority_batch")
async def a_batch_takes_from_several_levels(drive: Drive) -> None:
    await drive.block(ms=350)
    for tag, priority in {"low": 2, "low 2": 2, "high": 1, "low 3": 2, "low 4": 2}.items():
        await drive.queue(tag, priority=priority)


@scenario("priority_limits", words=_FULL)
async def each_level_has_its_own_size(drive: Drive) -> None:
    await drive.block(ms=350)
    await drive.queue("high", priority=1)
    await drive.answers(drive.send("high too many", priority=1))
    await drive.queue("low", priority=2)
    await drive.queue("low 2", priority=2)
    await drive.answers(drive.send("low too many", priority=2))


@scenario("queue_size", words=_FULL)
async def a_full_queue_refuses(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a")
    await drive.queue("b")
    await drive.answers(drive.send("c"))
    drive.still_blocked()


@scenario("queue_reject", words=_EXPIRED)
async def what_waits_too_long_is_rejected(drive: Drive) -> None:
    await drive.block(ms=500, outlasts_ms=200)
    await drive.queue("a")
    await drive.queue("b")


@scenario("queue_reject", words=_EXPIRED)
async def a_request_may_shorten_its_timeout(drive: Drive) -> Facts:
    await drive.block(ms=500, outlasts_ms=200)
    usual = await drive.queue("a")
    await drive.queue("long", timeout=10_000_000)
    short = drive.send("short", timeout=20_000)
    await drive.answers()
    return {"short first": short.ended_us < usual.ended_us}


@scenario("queue_reject", words=_EXPIRED)
async def rejected_requests_leave_the_instance_to_others(drive: Drive) -> None:
    await drive.block(ms=500, outlasts_ms=200)
    await drive.queue("late")
    await drive.answers()
    await drive.answers(drive.send("next"))


@scenario("queue_fixed", words=_EXPIRED)
async def without_override_the_timeout_of_the_request_is_ignored(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a", timeout=1_000)


@scenario("queue_override")
async def without_a_default_the_override_has_no_effect(drive: Drive) -> None:
    await drive.block()
    await drive.queue("a", timeout=1_000)


@scenario("queue_delay")
async def delayed_requests_go_behind_the_others(drive: Drive) -> None:
    await drive.block(ms=600)
    await drive.queue("late", timeout=300_000)
    await drive.queue("late too", timeout=20_000)
    await drive.sleep(0.35 / drive.patience)
    await drive.queue("a")
    await drive.queue("b")


@scenario("queue_delay", words=_FULL)
async def delayed_requests_count_in_the_size_of_the_queue(drive: Drive) -> None:
    await drive.block(ms=400)
    for tag in "abcd":
        await drive.queue(tag, timeout=20_000)
    await drive.sleep(0.1 / drive.patience)
    await drive.answers(drive.send("e"))
    drive.still_blocked()
