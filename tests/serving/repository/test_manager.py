from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serving.errors import InvalidArgumentError, ModelLoadError, UnavailableError
from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from serving.repository.poller import Poller
from serving.repository.source import LoadRequest
from tests.serving.repository.fakes import FakeLoader, rows, write_model
from tests.waiting import wait_until


class Bench:
    def __init__(self, *roots: Path, timeout_s: float = 30) -> None:
        self.loader = FakeLoader()
        self.lifecycle = Lifecycle()
        self.manager = RepositoryManager(
            roots,
            self.lifecycle,
            self.loader,
            LoadThreads(),
            load_slots=asyncio.Semaphore(2),
            load_timeout_s=timeout_s,
        )

    def content(self, name: str, version: int = -1) -> str:
        model: Any = self.lifecycle.resolve(name, version)
        return str(model.content)

    def rows(self, *, ready_only: bool = False) -> list[str]:
        return rows(self.manager.index(ready_only=ready_only))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
async def bench(root: Path) -> AsyncIterator[Bench]:
    bench = Bench(root)
    yield bench
    bench.loader.release.set()
    await bench.manager.close(5)


async def test_index_shows_models_never_asked_for_without_state(root, bench):
    write_model(root, "a", v1="x")
    write_model(root, "b", v1="x", v2="y")
    await bench.manager.load("b")

    assert bench.rows() == ["a:", "b:1 READY", "b:2 READY"]
    assert bench.rows(ready_only=True) == ["b:1 READY", "b:2 READY"]


async def test_load_of_an_unchanged_model_does_nothing(root, bench):
    write_model(root, "m", v1="x")
    await bench.manager.load("m")
    await bench.manager.load("m")

    assert len(bench.loader.loaded) == 1


async def test_new_version_leaves_the_unchanged_one_running(root, bench):
    write_model(root, "m", v1="one")
    await bench.manager.load("m")
    first = bench.lifecycle.resolve("m")
    write_model(root, "m", v2="two")

    await bench.manager.load("m")

    assert bench.lifecycle.resolve("m", 1) is first
    assert bench.content("m") == "two"


async def test_edit_reloads_and_the_replaced_model_is_closed(root, bench):
    write_model(root, "m", v1="old")
    await bench.manager.load("m")
    write_model(root, "m", v1="newer")

    await bench.manager.load("m")
    await bench.manager.settled()

    assert bench.content("m") == "newer"
    assert bench.loader.loaded[0].is_closed


async def test_replaced_model_answers_until_its_successor_is_ready(root, bench):
    write_model(root, "m", v1="old")
    await bench.manager.load("m")
    write_model(root, "m", v1="hang")

    load = asyncio.create_task(bench.manager.load("m"))
    await wait_until(lambda: bench.loader.hanging)
    assert bench.content("m") == "old"
    assert bench.rows() == ["m:1 READY"]
    bench.loader.release.set()
    await load

    assert bench.content("m") == "hang"


async def test_failed_reload_keeps_what_served(root, bench):
    write_model(root, "m", v1="good")
    await bench.manager.load("m")
    write_model(root, "m", v1="broken")

    with pytest.raises(ModelLoadError) as caught:
        await bench.manager.load("m")

    assert caught.value.message == (
        "load failed for model 'm': version 1 is at UNAVAILABLE state: load: 1/model is broken"
    )
    assert bench.content("m") == "good"
    assert bench.rows() == ["m:1 READY"]


async def test_failed_load_tells_the_same_every_time(root, bench):
    write_model(root, "m", v1="broken")
    messages = []
    for _ in range(3):
        with pytest.raises(ModelLoadError) as caught:
            await bench.manager.load("m")
        messages.append(caught.value.message)

    assert len(set(messages)) == 1
    assert bench.rows() == ["m:1 UNAVAILABLE load: 1/model is broken"]


async def test_one_bad_version_takes_the_others_of_its_load_back(root, bench):
    write_model(root, "m", v1="good", v2="broken", v3="bug")

    with pytest.raises(ModelLoadError, match=r"version 2 .*; version 3 .*ZeroDivisionError"):
        await bench.manager.load("m")
    await bench.manager.settled()

    assert bench.rows()[0] == ("m:1 UNAVAILABLE not served because version 2 and 3 failed to load")
    assert bench.loader.loaded[0].is_closed


async def test_bad_config_is_a_row_without_version_until_mended(root, bench):
    model = write_model(root, "m", v1="x")
    (model / "bad_config").write_text("")
    with pytest.raises(ModelLoadError, match="load failed for model 'm': config.pbtxt:3:1: bad"):
        await bench.manager.load("m")
    assert bench.rows() == ["m: UNAVAILABLE config.pbtxt:3:1: bad"]

    (model / "bad_config").unlink()
    await bench.manager.load("m")

    assert bench.rows() == ["m:1 READY"]


@pytest.mark.parametrize("name", ["nope", ".hidden", "x" * 300, "\udcff", "a\nb"])
async def test_unknown_name_fails_to_load_and_leaves_no_row(root, bench, name):
    (root / ".hidden" / "1").mkdir(parents=True)
    with pytest.raises(InvalidArgumentError, match="(?s)failed to load '.*', failed to poll"):
        await bench.manager.load(name)
    assert bench.rows() == []


@pytest.mark.parametrize("name", ["", "  ", "..", ".", "a/b", "../x", "a\0"])
async def test_name_that_is_no_directory_name_is_refused(bench, name):
    with pytest.raises(InvalidArgumentError, match="cannot be empty|path traversal"):
        await bench.manager.load(name)
    with pytest.raises(InvalidArgumentError, match="cannot be empty|path traversal"):
        await bench.manager.unload(name)


async def test_unload_drains_before_it_says_unloaded(root, bench):
    write_model(root, "m", v1="x")
    await bench.manager.load("m")
    model = bench.loader.loaded[0]
    model.may_close.clear()

    await bench.manager.unload("m")
    assert bench.rows() == ["m:1 UNLOADING"]
    model.may_close.set()
    await bench.manager.settled()

    assert bench.rows() == ["m:1 UNAVAILABLE unloaded"]
    assert model.is_closed


async def test_unload_of_an_unknown_model_is_no_error(bench):
    await bench.manager.unload("nope")
    assert bench.rows() == []


async def test_one_version_is_unloaded_and_a_plain_load_brings_it_back(root, bench):
    write_model(root, "m", v1="x", v2="y")
    await bench.manager.load("m")

    await bench.manager.unload("m", 2)
    await bench.manager.settled()
    assert bench.rows() == ["m:1 READY", "m:2 UNAVAILABLE unloaded"]
    with pytest.raises(InvalidArgumentError, match="version 9 of model 'm': it has versions 1, 2"):
        await bench.manager.unload("m", 9)

    await bench.manager.load("m")
    assert bench.rows() == ["m:1 READY", "m:2 READY"]
    assert len(bench.loader.loaded) == 3


async def test_asked_for_versions_are_served_until_the_next_plain_load(root, bench):
    write_model(root, "m", v1="x", v2="y", v3="z")
    await bench.manager.load("m", LoadRequest(versions=frozenset({1, 3})))
    assert bench.rows() == ["m:1 READY", "m:3 READY"]

    await bench.manager.load("m", LoadRequest(versions=frozenset({1})))
    await bench.manager.settled()
    assert bench.rows() == ["m:1 READY", "m:3 UNAVAILABLE unloaded"]

    await bench.manager.load("m")
    assert bench.rows() == ["m:1 READY", "m:2 READY", "m:3 READY"]


async def test_unload_forgives_a_failed_model(root, bench):
    write_model(root, "m", v1="broken")
    with pytest.raises(ModelLoadError):
        await bench.manager.load("m")
    assert not bench.lifecycle.is_serving_everything()

    await bench.manager.unload("m")

    assert bench.rows() == ["m:1 UNAVAILABLE unloaded"]
    assert bench.lifecycle.is_serving_everything()


async def test_load_that_never_ends_is_given_up(root):
    bench = Bench(root, timeout_s=0.05)
    write_model(root, "m", v1="hang")

    with pytest.raises(ModelLoadError, match="did not end within 0.05 s"):
        await bench.manager.load("m")
    assert "did not end" in bench.rows()[0]
    bench.loader.release.set()
    await bench.manager.settled()
    assert bench.loader.loaded == []


async def test_model_that_arrives_although_its_load_was_given_up_is_closed(root):
    bench = Bench(root, timeout_s=0.05)
    bench.loader.is_stubborn = True
    write_model(root, "m", v1="hang")

    with pytest.raises(ModelLoadError):
        await bench.manager.load("m")
    bench.loader.release.set()
    await bench.manager.settled()

    assert bench.loader.loaded[0].is_closed


async def test_models_load_side_by_side_within_the_slots(root, bench):
    for name in ("a", "b", "c"):
        write_model(root, name, v1="hang")
    loads = asyncio.create_task(bench.manager.load_all())
    await wait_until(lambda: bench.loader.hanging == 2)

    bench.loader.release.set()
    assert await loads == {}
    assert bench.rows() == ["a:1 READY", "b:1 READY", "c:1 READY"]
    assert bench.loader.most_at_once == 2


async def test_caller_that_goes_away_leaves_no_half_loaded_model(root, bench):
    write_model(root, "m", v1="hang")
    load = asyncio.create_task(bench.manager.load("m"))
    await wait_until(lambda: bench.loader.hanging)
    load.cancel()
    bench.loader.release.set()
    await bench.manager.settled()

    assert bench.rows() == ["m:1 READY"]


async def test_config_override_always_reloads_and_a_plain_load_reverts(root, bench):
    write_model(root, "m", v1="x")
    await bench.manager.load("m")
    await bench.manager.load("m", LoadRequest(config="{}"))
    await bench.manager.load("m", LoadRequest(config="{}"))
    assert len(bench.loader.loaded) == 3

    await bench.manager.load("m")
    assert len(bench.loader.loaded) == 4
    assert bench.loader.prepared[-1].request.config is None


async def test_file_override_serves_from_a_temporary_directory(root, bench, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    write_model(root, "m", v1="disk")
    await bench.manager.load("m")

    await bench.manager.load("m", LoadRequest(config="{}", files={"5/model": b"sent"}))
    await bench.manager.settled()
    assert bench.content("m") == "sent"
    assert bench.rows() == ["m:1 UNAVAILABLE unloaded", "m:5 READY"]
    assert len(list(tmp_path.glob("conch-override-*"))) == 1

    await bench.manager.load("m")
    await bench.manager.settled()
    assert bench.content("m") == "disk"
    assert list(tmp_path.glob("conch-override-*")) == []


async def test_failed_or_unloaded_file_override_leaves_no_directory(
    root, bench, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ModelLoadError):
        await bench.manager.load("new", LoadRequest(config="{}", files={"1/model": b"broken"}))
    await bench.manager.load("new", LoadRequest(config="{}", files={"1/model": b"fine"}))
    await bench.manager.unload("new")
    await bench.manager.settled()

    assert list(tmp_path.glob("conch-override-*")) == []
    assert bench.rows() == []


async def test_files_without_config_are_refused(bench):
    with pytest.raises(InvalidArgumentError, match="must be specified for model file override"):
        await bench.manager.load("m", LoadRequest(files={"1/model": b"x"}))


async def test_model_in_two_repositories_is_refused_until_one_copy_is_gone(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_model(one, "m", v1="x")
    write_model(two, "m", v1="y")
    bench = Bench(one, two)

    with pytest.raises(InvalidArgumentError, match="two or more repositories"):
        await bench.manager.load("m")
    assert bench.rows() == ["m: UNAVAILABLE model appears in two or more repositories"]
    assert bench.rows(ready_only=True) == bench.rows()
    assert not bench.lifecycle.is_serving_everything()

    (two / "m").rename(tmp_path / "away")
    os.utime(two)
    await bench.manager.load("m")
    assert bench.rows() == ["m:1 READY"]
    await bench.manager.close(5)


async def test_poll_follows_the_disk_and_isolates_the_bad_model(root, bench):
    poller = Poller(bench.manager, 1)
    write_model(root, "bad", v1="broken")
    write_model(root, "good", v1="one")

    async def look() -> None:
        await poller.poll_once()
        await poller.poll_once()
        await poller.finish()
        await bench.manager.settled()

    await look()
    assert bench.rows() == ["bad:1 UNAVAILABLE load: 1/model is broken", "good:1 READY"]

    write_model(root, "bad", v1="mended")
    (root / "good").rename(root.parent / "good")
    await look()
    assert bench.rows() == ["bad:1 READY"]


async def test_poll_forgets_a_failed_model_that_was_taken_away(root, bench):
    poller = Poller(bench.manager, 1)
    (write_model(root, "m", v1="x") / "bad_config").write_text("")
    await poller.poll_once()
    await poller.poll_once()
    await poller.finish()
    assert not bench.lifecycle.is_serving_everything()

    (root / "m").rename(root.parent / "away")
    await poller.poll_once()

    assert bench.rows() == []
    assert bench.lifecycle.is_serving_everything()


async def test_close_refuses_loads_and_reports_what_would_not_end(root):
    bench = Bench(root)
    write_model(root, "m", v1="x")
    await bench.manager.load("m")
    model = bench.loader.loaded[0]
    model.may_close.clear()

    assert not await bench.manager.close(0.05)
    with pytest.raises(UnavailableError, match="the server is stopping"):
        await bench.manager.load("m")
