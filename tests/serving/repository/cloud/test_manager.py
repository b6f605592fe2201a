"""Loads out of a bucket as the manager runs them: while others load, poll, and stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from serving.errors import ModelLoadError, UnavailableError
from serving.repository.cloud.cache import BlobCache
from serving.repository.cloud.root import CloudRoot
from serving.repository.cloud.session import Session
from serving.repository.lifecycle import Lifecycle
from serving.repository.load_threads import LoadThreads
from serving.repository.manager import RepositoryManager
from serving.repository.poller import Poller
from tests.serving.repository.cloud.fakes import FakeBucket
from tests.serving.repository.fakes import FakeLoader, rows, write_model
from tests.waiting import wait_until


class Gate:
    """Holds up the reading of one model's files until it is opened."""

    def __init__(self, bucket: FakeBucket, name: str) -> None:
        self.is_reached = threading.Event()
        self.may_go_on = threading.Event()
        self._part = f"/{name}/"
        bucket.before_read = self._wait

    def _wait(self, key: str, start: int) -> None:
        if self._part in key:
            self.is_reached.set()
            assert self.may_go_on.wait(10)


@pytest.fixture
async def manager(store, tmp_path) -> AsyncIterator[RepositoryManager]:
    cache = BlobCache(tmp_path / "cache", 10_000)
    session = Session(cache.directory)
    (tmp_path / "local").mkdir()
    from serving.config.protobuf import pb

    root = CloudRoot(
        store, lambda: (cache, session), read_config=lambda directory, override: pb.ModelConfig()
    )
    manager = RepositoryManager(
        [tmp_path / "local", root], Lifecycle(), FakeLoader(), LoadThreads()
    )
    yield manager
    await manager.close(5)
    session.close()


async def test_a_download_is_loading_and_holds_up_nobody(manager, bucket, tmp_path):
    bucket.write("a/1/model", "a")
    bucket.write("b/1/model", "b")
    write_model(tmp_path / "local", "c", v1="c")
    gate = Gate(bucket, "a")
    loading = asyncio.create_task(manager.load("a"))
    await wait_until(gate.is_reached.is_set)

    await asyncio.wait_for(asyncio.gather(manager.load("b"), manager.load("c")), 5)

    index = rows(manager.index())
    assert index[0].startswith("a: LOADING downloading from s3://bucket/models/a: 0 bytes of 1")
    assert index[1:] == ["b:1 READY", "c:1 READY"]
    with pytest.raises(UnavailableError, match="'a' is not at ready state: it is still loading"):
        manager._lifecycle.resolve("a")
    gate.may_go_on.set()
    await loading
    assert rows(manager.index())[0] == "a:1 READY"


async def test_a_download_is_under_no_deadline_of_the_load(manager, bucket):
    bucket.write("a/1/model", "a")
    manager._attempts._timeout_s = 0.05
    gate = Gate(bucket, "a")
    loading = asyncio.create_task(manager.load("a"))
    await wait_until(gate.is_reached.is_set)
    done, _ = await asyncio.wait({loading}, timeout=0.2)
    assert not done
    manager._attempts._timeout_s = 5
    gate.may_go_on.set()
    await loading


async def test_a_failed_download_is_a_failed_load_with_the_reason(manager, bucket):
    bucket.write("a/1/model", "a")

    def fail(key: str, start: int) -> None:
        raise PermissionError("Access Denied")

    bucket.before_read = fail
    with pytest.raises(ModelLoadError, match="load failed for model 'a': reading '1/model' of"):
        await manager.load("a")
    assert rows(manager.index())[0].startswith("a: UNAVAILABLE reading '1/model' of model reposit")


async def test_stop_ends_a_download_and_leaves_no_directory(manager, bucket, tmp_path):
    bucket.write("a/1/model", "a")
    gate = Gate(bucket, "a")
    loading = asyncio.create_task(manager.load("a"))
    await wait_until(gate.is_reached.is_set)
    closing = asyncio.create_task(manager.close(5))
    with pytest.raises(UnavailableError, match="the server is stopping"):
        await loading
    gate.may_go_on.set()
    assert await asyncio.wait_for(closing, 5)
    assert not list((tmp_path / "cache/blobs").glob("*/*/model"))


async def test_an_outage_at_the_first_poll_unloads_nothing(manager, bucket):
    bucket.write("a/1/model", "a")
    await manager.load("a")
    poller = Poller(manager, 1)
    poller.tracker.record_loaded("a", manager.served_stamp("a"))

    def fail() -> None:
        raise ConnectionRefusedError("refused")

    bucket.before_list = fail
    for _ in range(3):
        await poller.poll_once()
        await poller.finish()
    assert rows(manager.index()) == ["a:1 READY"]

    bucket.before_list = lambda: None
    bucket.remove("a/1/model")
    bucket.write("b/1/model", "b")
    for _ in range(3):
        await poller.poll_once()
        await poller.finish()
    assert rows(manager.index()) == ["b:1 READY"]


async def test_a_model_that_has_just_been_uploaded_is_there(manager, bucket):
    bucket.write("a/1/model", "a")
    assert rows(manager.index()) == []
    assert await manager.has("a")
    assert not await manager.has("b")
    await manager.load("a")
    assert rows(manager.index()) == ["a:1 READY"]
