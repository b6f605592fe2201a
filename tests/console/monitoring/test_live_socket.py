"""The live socket: who gets it, what it sends, how a browser resumes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import AnonymousUser

from console.monitoring import consumers
from console.monitoring.consumers import LiveConsumer
from console.monitoring.relay import Relay, relay
from tests.console.fakes import FakeWorkerClient, make_sample
from tests.console.monitoring.browser import BrowserSocket
from workers.messages import Event

pytestmark = pytest.mark.django_db(transaction=True)


def socket_of(user: Any) -> BrowserSocket:
    return BrowserSocket(LiveConsumer.as_asgi(), user)


async def refusal_of(user: Any) -> int:
    browser = socket_of(user)
    await browser.connect()
    return await browser.close_code()


@pytest.fixture
async def running_relay(settings: Any, fake_workers: FakeWorkerClient) -> Any:
    settings.CONCH_LIVE_RELAY = True
    relay._ring.clear()
    yield fake_workers
    await relay.stop()


async def test_anonymous_and_strangers_get_a_code_of_their_own(stranger: Any) -> None:
    assert await refusal_of(AnonymousUser()) == 4401
    assert await refusal_of(stranger) == 4403


async def test_no_more_sockets_than_the_setting_allows(viewer: Any, settings: Any) -> None:
    settings.CONCH_LIVE_SOCKETS = 1
    first = socket_of(viewer)
    await first.connect()

    assert await refusal_of(viewer) == 4429

    await first.leave()
    again = socket_of(viewer)
    assert await again.connect()
    await again.leave()


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", '{"resume": 5}'])
async def test_message_that_is_no_resume_closes_the_socket(viewer: Any, text: str) -> None:
    browser = socket_of(viewer)
    await browser.connect()

    await browser.send_text(text)

    assert await browser.close_code() == 4400


async def test_viewer_gets_samples_and_events_as_they_come(
    viewer: Any, running_relay: FakeWorkerClient
) -> None:
    browser = socket_of(viewer)
    await browser.connect()
    await browser.joins()

    running_relay.announce(make_sample("w"))
    running_relay.announce(Event("w", 5.0, "model_state", "m", "1", "READY"))

    sample = await browser.entry()
    event = await browser.entry()
    assert (sample["type"], sample["data"]["worker_id"]) == ("sample", "w")
    assert (event["type"], event["data"]["state"]) == ("event", "READY")
    await browser.leave()


async def test_browser_that_returns_gets_what_it_missed(
    viewer: Any, running_relay: FakeWorkerClient
) -> None:
    first = socket_of(viewer)
    await first.connect()
    await first.joins()
    for number in range(3):
        running_relay.announce(make_sample(f"w{number}"))
    seen = [await first.entry() for _ in range(3)]
    await first.leave()

    second = socket_of(viewer)
    await second.connect()
    await second.resume(seen[0]["id"])

    missed = [await second.entry() for _ in range(2)]
    assert [entry["data"]["worker_id"] for entry in missed] == ["w1", "w2"]
    await second.leave()


async def test_browser_that_was_away_too_long_is_told_to_start_again(
    viewer: Any, running_relay: FakeWorkerClient
) -> None:
    browser = socket_of(viewer)
    await browser.connect()
    await browser.resume("1-1")

    assert await browser.entry() == {"type": "reset"}
    await browser.leave()


async def test_socket_ends_when_its_owner_loses_the_role(
    viewer: Any, running_relay: FakeWorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "CHECK_EVERY_S", -1.0)
    browser = socket_of(viewer)
    await browser.connect()
    await browser.joins()
    await database_sync_to_async(viewer.groups.clear)()

    running_relay.announce(make_sample("w"))

    assert await browser.close_code() == 4403


class BrokenOnce(FakeWorkerClient):
    """Loses the stream once, as when Redis restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def follow(self, last_id: str = "$") -> Any:
        self.asked.append(last_id)
        if len(self.asked) == 2:
            raise ConnectionError("gone")
        yield f"{len(self.asked)}-0", make_sample("w")


async def test_relay_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BrokenOnce()
    monkeypatch.setattr("console.monitoring.relay.get_client", lambda: client)
    monkeypatch.setattr("console.monitoring.relay.FIRST_WAIT_S", 0.0)
    own = Relay()
    own.ensure_started()
    async with asyncio.timeout(5):
        while len(client.asked) < 4:
            await asyncio.sleep(0)
    await own.stop()

    assert client.asked[:4] == ["$", "1-0", "1-0", "3-0"]
    texts = own.missed("1-0")
    assert texts is not None
    assert json.loads(texts[0])["id"] == "3-0"
