"""Random operations on a few models at once: nothing leaks, nothing hangs, in whatever order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from serving.errors import ServingError
from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from serving.repository.source import LoadRequest
from tests.serving.repository.fakes import FakeLoader, write_model

NAMES = ("a", "b", "c")


async def one_operation(
    manager: RepositoryManager, root: Path, chance: random.Random, name: str
) -> None:
    kind = chance.choice(["load", "load", "edit", "unload", "unload one", "pin", "send", "break"])
    try:
        match kind:
            case "load":
                await manager.load(name)
            case "edit":
                write_model(root, name, v1=f"{chance.random()}", v2="fine")
                await manager.load(name)
            case "break":
                write_model(root, name, v2="broken")
                await manager.load(name)
            case "unload":
                await manager.unload(name)
            case "unload one":
                await manager.unload(name, chance.choice([1, 2]))
            case "pin":
                await manager.load(name, LoadRequest(versions=frozenset({chance.choice([1, 2])})))
            case "send":
                await manager.load(name, LoadRequest("{}", {"5/model": b"sent"}))
    except ServingError:
        return


@pytest.mark.parametrize("seed", range(8))
async def test_random_operations_leave_nothing_behind(tmp_path: Path, monkeypatch, seed: int):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = tmp_path / "root"
    for name in NAMES:
        write_model(root, name, v1="x", v2="y")
    chance = random.Random(seed)
    loader, lifecycle = FakeLoader(), Lifecycle()
    manager = RepositoryManager(
        [root], lifecycle, loader, LoadThreads(), load_slots=asyncio.Semaphore(2)
    )

    async def client() -> None:
        for _ in range(15):
            await one_operation(manager, root, chance, chance.choice(NAMES))

    await asyncio.wait_for(asyncio.gather(*(client() for _ in range(6))), 60)
    await manager.settled()

    serving: list[Any] = lifecycle.ready_models()
    assert {id(model) for model in loader.loaded if not model.is_closed} == set(map(id, serving))
    assert {entry.state for entry in lifecycle.entries()} <= {"READY", "UNAVAILABLE"}
    sent = {model.name for model in serving if model.version == 5}
    assert len(list(tmp_path.glob("conch-override-*"))) == len(sent)

    assert await manager.close(10)
    assert all(model.is_closed for model in loader.loaded)
    assert list(tmp_path.glob("conch-override-*")) == []
