"""Which worker the gateway chooses, and when it reads the registry again."""

from __future__ import annotations

import asyncio

import pytest

from console.gateway.workers import NoWorkerError, Workers
from tests.console.fakes import FakeWorkerClient, make_model, make_worker


async def test_a_model_that_was_loaded_a_moment_ago_is_found_at_once(
    fake_workers: FakeWorkerClient,
) -> None:
    workers = Workers()
    fake_workers.infos = [make_worker("w1", models=[make_model("other")])]
    with pytest.raises(NoWorkerError, match="no worker knows 'm'"):
        await workers.candidates("m", "")

    fake_workers.infos = [make_worker("w1", models=[make_model("m")])]

    assert [found.worker_id for found in await workers.candidates("m", "")] == ["w1"]


async def test_requests_that_nobody_serves_share_one_reading(
    fake_workers: FakeWorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers()
    fake_workers.infos = [make_worker("w1", models=[make_model("other")])]
    await workers.candidates("other", "")
    readings = 0

    def count() -> list[object]:
        nonlocal readings
        readings += 1
        return list(fake_workers.infos)

    monkeypatch.setattr(fake_workers, "workers", count)

    asked = [workers.candidates("m", "") for _ in range(50)]
    refused = await asyncio.gather(*asked, return_exceptions=True)

    assert all(isinstance(error, NoWorkerError) for error in refused)
    assert readings == 1
