from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.repository.poller import Poller, PollTracker
from serving.repository.storage import ModelStamp


def stamp(edit: int) -> ModelStamp:
    return ModelStamp(Path("m"), (("config.pbtxt", edit, 1),))


def test_new_model_is_loaded_when_it_looks_the_same_twice():
    tracker = PollTracker()

    assert tracker.look({"m": stamp(1)}).settling == ["m"]
    assert tracker.look({"m": stamp(2)}).settling == ["m"]  # still being copied
    assert tracker.look({"m": stamp(2)}).load == {"m": stamp(2)}


def test_unchanged_model_is_left_alone():
    tracker = PollTracker()
    tracker.record_loaded("m", stamp(1))

    plan = tracker.look({"m": stamp(1)})

    assert (plan.load, plan.unload, plan.settling) == ({}, [], [])


def test_failed_load_is_tried_again_at_the_next_look():
    tracker = PollTracker()
    tracker.look({"m": stamp(1)})
    assert tracker.look({"m": stamp(1)}).load
    assert tracker.look({"m": stamp(1)}).load


def test_edit_that_is_taken_back_between_two_looks_is_no_edit():
    tracker = PollTracker()
    tracker.record_loaded("m", stamp(1))
    tracker.look({"m": stamp(2)})

    assert not tracker.look({"m": stamp(1)}).load
    assert tracker.look({"m": stamp(2)}).settling == ["m"]


def test_model_is_unloaded_when_it_is_gone_twice():
    tracker = PollTracker()
    tracker.record_loaded("m", stamp(1))

    assert tracker.look({}).settling == ["m"]
    assert tracker.look({}).unload == ["m"]
    tracker.record_unloaded("m")
    assert repr(tracker) == "<PollTracker served=[] changed=[]>"


class Target:
    def __init__(self) -> None:
        self.files: dict[str, ModelStamp] = {}
        self.log: list[str] = []
        self.gate: dict[str, asyncio.Event] = {}
        self.fails: set[str] = set()

    async def scan(self) -> dict[str, ModelStamp]:
        if "scan" in self.fails:
            raise OSError("disk is away")
        return dict(self.files)

    async def poll_load(self, name: str) -> ModelStamp | None:
        if name in self.gate:
            await self.gate[name].wait()
        self.log.append(f"load {name}")
        return None if name in self.fails else self.files[name]

    async def poll_unload(self, name: str) -> None:
        self.log.append(f"unload {name}")


async def twice(poller: Poller) -> None:
    await poller.poll_once()
    await poller.poll_once()


async def test_slow_model_holds_up_neither_others_nor_the_next_look():
    target = Target()
    poller = Poller(target, 15)
    target.gate["slow"] = asyncio.Event()
    target.files = {"slow": stamp(1), "fast": stamp(1)}

    await twice(poller)
    target.files["later"] = stamp(1)
    await twice(poller)
    await asyncio.sleep(0)

    assert target.log == ["load fast", "load later"]
    target.gate["slow"].set()
    await poller.finish()
    assert target.log[-1] == "load slow"
    assert repr(poller.tracker) == "<PollTracker served=['fast', 'later', 'slow'] changed=[]>"


async def test_one_bad_model_is_retried_and_others_stay():
    target = Target()
    poller = Poller(target, 15)
    target.files = {"bad": stamp(1), "good": stamp(1)}
    target.fails = {"bad"}

    await twice(poller)
    await poller.finish()
    await poller.poll_once()
    await poller.finish()

    assert target.log == ["load bad", "load good", "load bad"]


async def test_round_that_fails_is_logged_and_the_next_one_runs(caplog):
    naps: list[float] = []
    target = Target()
    target.fails = {"scan"}

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            target.fails = set()
            target.files = {"m": stamp(1)}
        if len(naps) == 4:
            raise asyncio.CancelledError

    poller = Poller(target, 15, sleep)
    with pytest.raises(asyncio.CancelledError):
        await poller.run()
    await poller.finish()

    assert naps == [15, 15, 1.0, 15]
    assert "the next one goes on" in caplog.text
    assert target.log == ["load m"]
