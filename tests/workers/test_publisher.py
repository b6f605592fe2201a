"""The publisher's thread against a real Redis that comes and goes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from tests.console.fakes import make_sample, make_worker
from tests.redis_server import RedisServer
from tests.waiting import wait_until_blocking
from workers.client import WorkerClient
from workers.messages import Event, OperationResult, Sample, WorkerInfo
from workers.publisher import Publisher
from workers.registry import Registry

pytestmark = pytest.mark.redis


class Worker:
    """What a publisher asks; the loop may refuse to answer."""

    def __init__(self) -> None:
        self.hangs = threading.Event()

    def info(self) -> WorkerInfo:
        if self.hangs.is_set():
            raise TimeoutError
        return make_worker("w1", last_seen=time.time())

    def sample(self, interval_s: float) -> Sample:
        return make_sample("w1", interval_s=interval_s)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def publisher(redis_server: RedisServer, worker: Worker) -> Iterator[Publisher]:
    made = Publisher(Registry(redis_server.url), worker.info, worker.sample, where="here")
    made.start()
    yield made
    made.stop()


def event(number: int) -> Event:
    return Event("w1", float(number), "model_state", model=f"m{number}")


def test_news_go_out_at_once_with_a_heartbeat_and_a_sample_follows(publisher, client):
    publisher.tell(event(1), OperationResult("op", "w1", "load", "m", True, "", 0.0, 1.0))

    wait_until_blocking(lambda: client.operation_result("op"), 2)
    assert [item.model for item in client.events(since=0)] == ["m1"]
    assert [item.state for item in client.workers()] == ["ready"]
    wait_until_blocking(lambda: client.samples(since=0), 3)
    assert client.samples(since=0)[0].interval_s > 0.9


def test_news_wait_while_redis_is_away_and_keep_their_order(
    redis_server: RedisServer, publisher, caplog
):
    redis_server.stop()
    with caplog.at_level(logging.INFO):
        for number in range(5):
            publisher.tell(event(number))
        wait_until_blocking(lambda: "cannot be reached" in caplog.text)
        redis_server.start()
        client = WorkerClient(redis_server.url)
        wait_until_blocking(lambda: len(client.events(since=0)) == 5)

    assert [item.model for item in client.events(since=0)] == [f"m{item}" for item in range(5)]
    assert caplog.text.count("cannot be reached") == 1
    wait_until_blocking(lambda: "answers again" in caplog.text)


def test_no_heartbeat_goes_out_while_the_serving_loop_does_not_answer(
    publisher, worker: Worker, client, caplog
):
    worker.hangs.set()
    publisher.tell(event(1))
    wait_until_blocking(lambda: "no heartbeat is sent" in caplog.text)
    assert client.workers() == []
    assert [item.model for item in client.events(since=0)] == ["m1"]

    worker.hangs.clear()
    wait_until_blocking(lambda: client.workers())


def test_last_news_go_out_when_it_stops(publisher, client):
    publisher.stop()
    assert client.events(since=0) == []
    other = Worker()
    late = Publisher(publisher._registry, other.info, other.sample, where="here")
    late.start()
    late.tell(event(1))
    late.stop()
    assert [item.model for item in client.events(since=0)] == ["m1"]
