"""Models that need others (REP-058, REP-066): order of loads, and what an unload takes along."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.errors import ModelLoadError, ServingError
from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from tests.serving.repository.fakes import FakeLoader, write_model
from tests.waiting import wait_until


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.loader = FakeLoader()
        self.lifecycle = Lifecycle()
        self.manager = RepositoryManager([root], self.lifecycle, self.loader, LoadThreads())

    def write(self, name: str, *parts: str, content: str = "x") -> None:
        (write_model(self.root, name, v1=content) / "parts").write_text(" ".join(parts))

    def order(self) -> list[str]:
        return [model.name for model in self.loader.loaded]

    def ready(self) -> list[str]:
        return sorted(
            name for name in self.lifecycle.names() if self.lifecycle.ready_versions(name)
        )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    bench.write("outer", "inner", "c")
    bench.write("inner", "a", "b")
    bench.write("other", "b")
    for name in "abc":
        bench.write(name)
    yield bench
    bench.loader.release.set()
    await bench.manager.close(5)


async def test_rep_058_load_brings_its_parts_first(bench):
    await bench.manager.load("outer")

    order = bench.order()
    assert sorted(order) == ["a", "b", "c", "inner", "outer"]
    assert max(order.index("a"), order.index("b")) < order.index("inner") < order.index("outer")


async def test_rep_058_load_of_all_loads_each_model_once(bench):
    assert await bench.manager.load_all() == {}
    assert sorted(bench.order()) == ["a", "b", "c", "inner", "other", "outer"]


async def test_rep_058_two_loads_that_share_a_part_wait_for_each_other(bench):
    bench.write("b", content="hang")
    loads = [asyncio.create_task(bench.manager.load(name)) for name in ("outer", "other")]
    await wait_until(lambda: bench.loader.hanging)

    assert not any(task.done() for task in loads)
    bench.loader.release.set()
    await asyncio.gather(*loads)

    assert bench.order().count("b") == 1


async def test_rep_058_broken_part_fails_its_users_with_the_reason(bench):
    bench.write("b", content="broken")

    with pytest.raises(ModelLoadError, match="'outer': it needs model 'inner'.*'b'.*is broken"):
        await bench.manager.load("outer")

    assert bench.ready() == ["a", "c"]
    assert not bench.lifecycle.is_serving_everything()


async def test_rep_058_part_that_is_not_there_is_named(bench):
    bench.write("lonely", "nobody")
    with pytest.raises(ModelLoadError, match="it needs model 'nobody'.*failed to poll"):
        await bench.manager.load("lonely")


async def test_rep_058_circle_is_refused_and_nothing_hangs(bench):
    bench.write("a", "outer")
    async with asyncio.timeout(10):
        failed = await bench.manager.load_all()

    assert any("needs itself" in error.message for error in failed.values())
    assert bench.ready() == ["b", "c", "other"]


async def test_rep_066_unload_without_the_flag_leaves_the_parts(bench):
    await bench.manager.load("outer")
    await bench.manager.unload("outer")
    assert bench.ready() == ["a", "b", "c", "inner"]


async def test_rep_066_unload_with_the_flag_takes_parts_that_nobody_else_uses(bench):
    await bench.manager.load("outer")
    await bench.manager.load("other")
    await bench.manager.load("c")

    await bench.manager.unload("outer", with_parts=True)

    assert bench.ready() == ["b", "c", "other"]


async def test_rep_066_unload_of_a_part_takes_its_users_out_of_service(bench):
    await bench.manager.load("outer")
    await bench.manager.load("other")

    await bench.manager.unload("b")

    assert bench.ready() == ["a", "c"]
    await bench.manager.settled()
    entries = {entry.name: entry for entry in bench.manager.index()}
    assert entries["other"].reason == entries["inner"].reason == "unloaded with its part 'b'"
    assert bench.lifecycle.is_serving_everything()


async def test_sch_092_part_that_is_loaded_again_brings_its_ensembles_back(bench):
    await bench.manager.load("outer")
    await bench.manager.load("other")
    await bench.manager.unload("b")

    await bench.manager.load("b")

    assert bench.ready() == ["a", "b", "c", "inner", "other", "outer"]


async def test_sch_092_ensemble_that_was_unloaded_by_name_stays_out_when_its_part_comes(bench):
    await bench.manager.load("other")
    await bench.manager.unload("b")
    await bench.manager.unload("other")

    await bench.manager.load("b")

    assert bench.ready() == ["b"]
    assert {entry.reason for entry in bench.lifecycle.entries("other")} == {"unloaded"}


async def test_sch_092_ensemble_comes_when_the_part_that_was_broken_is_mended(bench):
    bench.write("b", content="broken")
    with pytest.raises(ModelLoadError):
        await bench.manager.load("other")

    bench.write("b", content="well again")
    await bench.manager.load("b")

    assert bench.ready() == ["b", "other"]


async def test_sch_092_ensemble_of_two_lost_parts_waits_for_both(bench):
    await bench.manager.load("inner")
    await bench.manager.unload("a")
    await bench.manager.unload("b")

    await bench.manager.load("a")
    assert bench.ready() == ["a"]
    await bench.manager.load("b")
    assert bench.ready() == ["a", "b", "inner"]


async def test_sch_092_replaced_part_that_no_longer_fits_takes_its_ensembles_out_of_service(bench):
    await bench.manager.load("outer")
    bench.loader.misfits = {"inner": "in ensemble 'inner', tensor 't' has an inconsistent shape"}
    bench.write("a", content="y")

    await bench.manager.load("a")

    assert bench.ready() == ["a", "b", "c"]
    await bench.manager.settled()
    (entry,) = bench.lifecycle.entries("inner")
    assert (entry.state, entry.reason) == ("UNAVAILABLE", bench.loader.misfits["inner"])
    bench.loader.misfits = {}
    bench.write("a", content="z")
    await bench.manager.load("a")
    assert bench.ready() == ["a", "b", "c", "inner", "outer"]


async def test_sch_092_ensemble_is_loaded_anew_when_a_part_changes_what_it_is(bench):
    await bench.manager.load("outer")
    bench.loader.changes = {"inner"}
    bench.write("a", content="y")

    await bench.manager.load("a")

    assert bench.order().count("inner") == 2
    assert bench.order().count("outer") == 1
    await bench.manager.settled()
    assert [model.is_closed for model in bench.loader.loaded if model.name == "inner"] == [
        True,
        False,
    ]


async def test_sch_092_poll_brings_ensembles_back_too(bench):
    await bench.manager.poll_load("other")
    await bench.manager.poll_unload("b")
    assert bench.ready() == []
    await bench.manager.poll_load("b")
    assert bench.ready() == ["b", "other"]


@pytest.mark.parametrize("seed", range(5))
async def test_random_loads_and_unloads_never_leave_an_ensemble_without_its_parts(bench, seed):
    chance = random.Random(seed)
    parts = {"outer": ["inner", "c"], "inner": ["a", "b"], "other": ["b"]}

    async def some_operations() -> None:
        for _ in range(15):
            name = chance.choice(["outer", "inner", "other", "a", "b", "c"])
            with contextlib.suppress(ServingError):
                if chance.random() < 0.5:
                    bench.write(name, *parts.get(name, ()), content=str(chance.random()))
                    await bench.manager.load(name)
                else:
                    await bench.manager.unload(name, with_parts=chance.random() < 0.3)
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*(some_operations() for _ in range(4)))
        await bench.manager.settled()

    ready = bench.ready()
    for name in set(ready) & parts.keys():
        assert set(parts[name]) <= set(ready), name
    assert await bench.manager.load_all() == {}
    assert bench.ready() == ["a", "b", "c", "inner", "other", "outer"]


async def test_part_that_goes_while_its_ensemble_loads_takes_it_along(bench):
    await bench.manager.load("b")
    bench.write("other", "b", content="hang")
    loading = asyncio.create_task(bench.manager.load("other"))
    await wait_until(lambda: bench.loader.hanging)

    await bench.manager.unload("b")
    bench.loader.release.set()
    await loading
    await bench.manager.settled()

    assert bench.ready() == []
    assert {entry.reason for entry in bench.lifecycle.entries("other")} == {
        "unloaded with its part 'b'"
    }


async def test_sch_092_ensemble_that_fails_to_load_anew_goes_on_with_the_parts_that_it_had(bench):
    await bench.manager.load("other")
    bench.write("other", "nowhere", content="y")
    with pytest.raises(ModelLoadError, match="nowhere"):
        await bench.manager.load("other")
    assert bench.ready() == ["b", "other"]

    await bench.manager.unload("b")

    assert bench.ready() == []
