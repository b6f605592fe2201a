"""The client against a real Redis, with what a worker writes there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest
import redis

from tests.console.fakes import make_model, make_model_sample, make_sample, make_worker
from tests.redis_server import RedisServer
from tests.waiting import wait_until, wait_until_blocking
from workers import client as client_module
from workers import connection, keys
from workers.client import WorkerClient, WorkerError
from workers.messages import Event, OperationResult, Reply
from workers.registry import Registry

pytestmark = pytest.mark.redis


@pytest.fixture
def registry(redis_server: RedisServer) -> Registry:
    return Registry(redis_server.url)


@pytest.fixture
def raw(redis_server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(redis_server.url)


def test_worker_is_lost_when_its_heartbeat_is_gone_and_can_be_forgotten(client, registry, raw):
    registry.publish(make_worker("b", models=[make_model("m")]))
    registry.publish(make_worker("a"))
    assert [(info.worker_id, info.state) for info in client.workers()] == [
        ("a", "ready"),
        ("b", "ready"),
    ]
    assert 0 < raw.ttl(keys.worker("a")) <= 10

    raw.delete(keys.worker("b"))
    lost = client.worker("b")
    assert lost is not None
    assert (lost.state, lost.models[0].name) == ("lost", "m")

    client.forget("b")
    assert client.worker("b") is None
    assert [info.worker_id for info in client.workers()] == ["a"]


def test_result_of_an_operation_is_kept_for_a_day(client, registry, raw):
    assert client.operation_result("op") is None
    result = OperationResult("op", "a", "load", "m", False, "broken", 1.0, 2.0)
    registry.publish(results=[result])
    assert client.operation_result("op") == result
    assert 80_000 < raw.ttl(keys.operation("op")) <= 86_400


def test_orders_to_workers_that_are_away_are_refused(client, registry, raw):
    with pytest.raises(WorkerError, match="there is no worker 'nobody'"):
        client.load_model("nobody", "m", operation_id="1")
    registry.publish(make_worker("a"))
    raw.delete(keys.worker("a"))
    with pytest.raises(WorkerError, match="worker 'a' is lost: it was last heard of at"):
        client.unload_model("a", "m", operation_id="1")


def test_order_waits_in_the_queue_of_its_worker_with_an_expiry(client, registry, raw):
    registry.publish(make_worker("a"))
    client.load_model("a", "m", operation_id="1", versions=[2])
    assert raw.llen("worker.a") == 1


def test_question_without_answer_ends_after_its_timeout(client, registry):
    registry.publish(make_worker("a"))
    started = time.monotonic()
    with pytest.raises(WorkerError, match="did not answer within 0.2 s"):
        client.describe_model("a", "m", timeout_s=0.2)
    assert time.monotonic() - started < 2


def test_answer_goes_to_its_asker_only_and_does_not_stay(registry, raw):
    registry.reply("r1", Reply(error="no"))
    assert 0 < raw.ttl(keys.reply("r1")) <= 60


def test_samples_and_events_come_oldest_first_bounded_by_time_and_number(client, registry):
    now = time.time()
    model = make_model_sample("m", queued=0)
    samples = [make_sample(at=now + index, models=[model]) for index in range(5)]
    registry.publish(samples=samples, events=[Event("a", now, "worker_started")])

    assert client.samples(since=now - 5) == samples
    assert client.samples(since=now - 5, limit=2) == samples[-2:]
    assert client.samples(since=now + 60) == []
    assert [event.kind for event in client.events(since=0)] == ["worker_started"]


def test_streams_are_bounded(registry, raw):
    event = Event("a", 1.0, "model_state")
    registry.publish(events=[event] * (keys.EVENTS_LENGTH * 2))
    assert raw.xlen(keys.EVENTS) < keys.EVENTS_LENGTH * 1.1


def test_unreadable_entry_is_skipped(client, registry, raw):
    raw.xadd(keys.EVENTS, {"data": b"{"})
    raw.xadd(keys.EVENTS, {"other": b"x"})
    registry.publish(events=[Event("a", 1.0, "worker_started")])
    assert [event.kind for event in client.events(since=0)] == ["worker_started"]


async def test_follow_starts_now_or_resumes_without_a_gap(client, registry, raw):
    registry.publish(events=[Event("a", 1.0, "old")])

    async def take(last_id: str, count: int) -> list[tuple[str, str]]:
        found = []
        stream = client.follow(last_id)
        async for entry_id, message in stream:
            found.append((entry_id, getattr(message, "kind", "sample")))
            if len(found) == count:
                break
        await stream.aclose()
        return found

    following = asyncio.create_task(take("$", 2))
    await wait_until(lambda: any("b" in item["flags"] for item in raw.client_list()))
    registry.publish(events=[Event("a", 2.0, "new")])
    registry.publish(samples=[make_sample()])
    found = await asyncio.wait_for(following, 10)
    # Within one millisecond the order of the two streams is nobody's promise.
    assert sorted(kind for _, kind in found) == ["new", "sample"]

    resumed = await asyncio.wait_for(take(found[0][0], 1), 10)
    assert resumed == [found[1]]
    everything = await asyncio.wait_for(take("0-0", 3), 10)
    assert everything[0][1] == "old"
    assert sorted(kind for _, kind in everything[1:]) == ["new", "sample"]


async def test_follow_says_when_redis_is_away(tmp_path):
    client = WorkerClient(f"unix://{tmp_path}/nowhere.sock")
    with pytest.raises(WorkerError, match="Redis cannot be reached"):
        async for _ in client.follow():
            pass
    with pytest.raises(WorkerError, match="Redis cannot be reached"):
        client.workers()


def test_client_starts_no_core_and_needs_no_environment():
    script = (
        "import sys, workers.client as c; c.WorkerClient('redis://127.0.0.1:1/0');"
        "print([m for m in ('serving.server', 'workers.app', 'onnxruntime', 'django.conf')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={})
    assert done.stdout.strip() == "[]", done.stderr


def test_a_redis_that_hangs_holds_one_caller_and_not_all(
    redis_server: RedisServer, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    """Pages ask several times each; only now and then one of them waits to see whether it hangs."""
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(client_module, "_PAUSE_S", 0.5)
    client = WorkerClient(redis_server.url)
    registry.publish(make_worker("a"))
    assert len(client.workers()) == 1
    assert not client.is_hanging
    redis_server.hang()
    try:
        start = time.monotonic()
        for _ in range(20):
            with pytest.raises(WorkerError, match="Redis"):
                client.workers()
        took_s = time.monotonic() - start
        assert client.is_hanging
        with pytest.raises(WorkerError, match="Redis hangs"):
            client.load_model("a", "m", operation_id="op")
    finally:
        redis_server.go_on()

    assert took_s < 1.2, "twenty questions, one or two waits of 0.3 s"
    wait_until_blocking(lambda: _answers(client))
    assert not client.is_hanging


def _answers(client: WorkerClient) -> bool:
    try:
        return bool(client.workers())
    except WorkerError:
        return False
