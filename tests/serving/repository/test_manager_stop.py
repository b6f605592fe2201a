"""The manager while the server stops: nothing stays open, nobody waits for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.errors import UnavailableError
from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from tests.serving.repository.fakes import FakeLoader, write_model
from tests.waiting import wait_until


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
def manager(tmp_path: Path, loader: FakeLoader) -> RepositoryManager:
    return RepositoryManager(
        [tmp_path], Lifecycle(), loader, LoadThreads(), load_slots=asyncio.Semaphore(4)
    )


async def test_stop_ends_a_load_and_closes_what_it_has_loaded_already(tmp_path, loader, manager):
    write_model(tmp_path, "m", v1="fine", v2="hang")
    load = asyncio.create_task(manager.load("m"))
    await wait_until(lambda: loader.hanging and loader.loaded)

    assert await manager.close(5)

    with pytest.raises(UnavailableError, match="the load of model 'm' was given up: the server"):
        await load
    assert [model.is_closed for model in loader.loaded] == [True]
    loader.release.set()


async def test_stop_closes_a_model_that_arrives_although_it_was_given_up(tmp_path, loader, manager):
    loader.is_stubborn = True
    write_model(tmp_path, "m", v1="hang")
    load = asyncio.create_task(manager.load("m"))
    await wait_until(lambda: loader.hanging)

    closing = asyncio.create_task(manager.close(5))
    await wait_until(load.done)
    loader.release.set()
    assert await closing

    assert [model.is_closed for model in loader.loaded] == [True]
    with pytest.raises(UnavailableError):
        await load


async def test_stop_ends_loads_that_wait_for_another_one(tmp_path, loader, manager):
    write_model(tmp_path, "m", v1="hang")
    loads = [asyncio.create_task(manager.load("m")) for _ in range(3)]
    await wait_until(lambda: loader.hanging)

    await manager.close(5)

    outcomes = await asyncio.gather(*loads, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UnavailableError] * 3
    loader.release.set()


async def test_names_that_nobody_uses_take_no_memory(tmp_path, manager):
    write_model(tmp_path, "m", v1="x")
    await manager.load("m")
    await manager.unload("m")
    await manager.unload("unknown")
    await manager.settled()
    assert repr(manager._locks) == "<NameLocks []>"
    await manager.close(5)
