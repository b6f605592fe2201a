"""Real workers, real Redis: what the console relies on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.redis_server import RedisServer
from tests.serving.model_files import IDENTITY, write_identity
from tests.waiting import wait_until_blocking
from tests.workers.conftest import WorkerProcess
from workers.client import WorkerClient, WorkerError
from workers.messages import Event, OperationResult, Sample, WorkerInfo

pytestmark = pytest.mark.redis
Start = Callable[..., WorkerProcess]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def wait_for_state(client: WorkerClient, state: str, timeout_s: float = 30) -> WorkerInfo:
    def current() -> WorkerInfo | None:
        return client.worker("w1")

    wait_until_blocking(lambda: (info := current()) and info.state == state, timeout_s)
    info = current()
    assert info is not None
    return info


def result_of(client: WorkerClient, operation_id: str) -> OperationResult:
    wait_until_blocking(lambda: client.operation_result(operation_id), 15)
    result = client.operation_result(operation_id)
    assert result is not None
    return result


def infer(info: WorkerInfo, model: str) -> int:
    body = {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]
    }
    url = f"{info.http_url}/v2/models/{model}/infer"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
        return int(answer.status)


def test_worker_loads_serves_describes_and_unloads(start_worker: Start, client, models):
    write_identity(models, "m", versions=(1, 2), extra="version_policy { all {} }")
    start_worker()
    info = wait_for_state(client, "ready")
    assert [(row.name, row.state) for row in info.models] == [("m", "")]

    client.load_model("w1", "m", operation_id="load-1")
    result = result_of(client, "load-1")
    assert (result.is_success, result.error, result.ready_versions) == (True, "", ["1", "2"])
    assert infer(info, "m") == 200

    description = client.describe_model("w1", "m")
    assert description.metadata["versions"] == ["1", "2"]
    assert description.config["max_batch_size"] == 8
    statistics = description.statistics["model_stats"]
    assert isinstance(statistics, list)
    assert [row["inference_count"] for row in statistics] == [0, 1]

    wait_until_blocking(lambda: sum_of_successes(client) == 1)

    client.unload_model("w1", "m", operation_id="unload-1", version=2)
    assert result_of(client, "unload-1").ready_versions == ["1"]
    client.load_model("w1", "m", operation_id="load-2", versions=[2])
    assert result_of(client, "load-2").ready_versions == ["2"]
    states = {(row.version, row.state) for row in client.index_models("w1")}
    assert states == {("1", "UNAVAILABLE"), ("2", "READY")}


def sum_of_successes(client: WorkerClient) -> int:
    samples = client.samples(since=time.time() - 60)
    return sum(model.success_count for sample in samples for model in sample.models)


def test_model_that_does_not_load_is_a_result_with_the_reason(start_worker, client, models):
    write_identity(models, "bad", extra="max_batch_sise: 1\n")
    start_worker()
    wait_for_state(client, "ready")

    client.load_model("w1", "bad", operation_id="op")
    result = result_of(client, "op")
    assert not result.is_success
    assert result.error.startswith("config.pbtxt:5:1")

    client.load_model("w1", "nope", operation_id="op-2")
    assert "there is no directory 'nope'" in result_of(client, "op-2").error
    with pytest.raises(WorkerError, match="'nope' is not found"):
        client.describe_model("w1", "nope")
    finished = [item for item in client.events(since=0) if item.kind == "operation_finished"]
    assert [(item.operation_id, item.state) for item in finished] == [
        ("op", "failed"),
        ("op-2", "failed"),
    ]


def test_order_that_lay_in_the_queue_for_too_long_is_dropped_and_reported(
    start_worker, client, models, monkeypatch
):
    write_identity(models, "m")
    start_worker()
    wait_for_state(client, "ready")
    monkeypatch.setattr("workers.client.ORDER_EXPIRES_S", -1)

    client.load_model("w1", "m", operation_id="late")

    assert "waited too long in the worker's queue" in result_of(client, "late").error
    assert [row.state for row in client.index_models("w1")] == [""]


def test_killed_worker_is_lost_within_ten_seconds_and_comes_back(start_worker, client, models):
    write_identity(models, "m")
    worker = start_worker(CONCH_LOAD_MODELS="m")
    info = wait_for_state(client, "ready")
    wait_until_blocking(lambda: [row.state for row in client.index_models("w1")] == ["READY"])

    worker.end(signal.SIGKILL)
    killed_at = time.monotonic()
    lost = wait_for_state(client, "lost", 12)
    assert time.monotonic() - killed_at < 10.5
    assert lost.pid == info.pid
    assert [item.state for item in client.workers()] == ["lost"]
    with pytest.raises(WorkerError, match="worker 'w1' is lost"):
        client.load_model("w1", "m", operation_id="in-vain")

    start_worker()
    back = wait_for_state(client, "ready")
    assert [row.state for row in back.models] == [""]


def test_log_lines_are_json_on_demand(start_worker, client, models):
    write_identity(models, "m")
    worker = start_worker(CONCH_LOG_JSON="true", CONCH_LOAD_MODELS="m")
    wait_for_state(client, "ready")
    worker.end()
    lines = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
    assert any(line["message"].startswith("worker 'w1' serves HTTP on") for line in lines)
    assert {line["level"] for line in lines} <= {"info", "warning"}


def test_term_drains_says_so_and_leaves_the_registry(start_worker, client, models):
    write_identity(models, "m")
    worker = start_worker(CONCH_LOAD_MODELS="*")
    wait_for_state(client, "ready")

    assert worker.end() == 0

    info = client.worker("w1")
    assert info is not None
    assert (info.state, info.models) == ("stopped", [])
    told = [(item.kind, item.state) for item in client.events(since=0)]
    assert told[-3:] == [
        ("worker_stopping", ""),
        ("model_state", "UNLOADING"),
        ("model_state", "UNAVAILABLE"),
    ]
    with pytest.raises(WorkerError, match="worker 'w1' is stopped"):
        client.load_model("w1", "m", operation_id="late")
    client.forget("w1")
    assert client.workers() == []


def test_term_lets_an_accepted_request_finish(start_worker, client, models):
    write_identity(models, "m", delay_ms=1000)
    worker = start_worker(CONCH_LOAD_MODELS="m")
    info = wait_for_state(client, "ready")
    answers: list[int] = []
    caller = threading.Thread(target=lambda: answers.append(infer(info, "m")))
    caller.start()
    wait_until_blocking(
        lambda: 'conch_inflight_requests{model="m",version="1"} 1' in metrics(info), 10
    )

    assert worker.end() == 0
    caller.join(5)
    assert answers == [200]


def metrics(info: WorkerInfo) -> str:
    with urllib.request.urlopen(info.metrics_url, timeout=5) as answer:
        return str(answer.read().decode())


def test_redis_that_is_away_at_start_is_named_and_retried(
    redis_server: RedisServer, start_worker, models
):
    write_identity(models, "m")
    redis_server.stop()
    worker = start_worker(CONCH_LOAD_MODELS="m")
    worker.wait_for("cannot be reached")
    assert redis_server.url in worker.log
    worker.wait_for("serves HTTP on")

    redis_server.start()
    client = WorkerClient(redis_server.url)
    wait_for_state(client, "ready")
    assert [row.state for row in client.index_models("w1", timeout_s=15)] == ["READY"]


def test_worker_serves_on_while_redis_is_away(redis_server: RedisServer, start_worker, models):
    write_identity(models, "m")
    worker = start_worker(CONCH_LOAD_MODELS="m")
    client = WorkerClient(redis_server.url)
    info = wait_for_state(client, "ready")

    redis_server.stop()
    worker.wait_for("serving goes on")
    assert infer(info, "m") == 200
    with pytest.raises(WorkerError, match="Redis cannot be reached"):
        client.workers()

    redis_server.start()
    wait_for_state(client, "ready")


def test_slow_loads_do_not_keep_the_worker_from_answering(start_worker, client, models):
    for number in range(6):
        model = models / f"slow{number}"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(SLOW_MODEL)
        (model / "config.pbtxt").write_text(IDENTITY.replace("identity", "python"))
    write_identity(models, "m")
    worker = start_worker(CONCH_LOAD_MODELS="m")
    wait_for_state(client, "ready")

    for number in range(6):
        client.load_model("w1", f"slow{number}", operation_id=f"op{number}")
    assert client.describe_model("w1", "m", timeout_s=5).metadata["name"] == "m"
    assert client.operation_result("op0") is None

    assert worker.end() == 0
    assert "stopping" in result_of(client, "op0").error


SLOW_MODEL = """
import time


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(60)

    def execute(self, requests):
        return []
"""


def test_samples_and_events_can_be_followed(start_worker, client, models):
    start_worker()

    async def collect() -> list[Sample | Event]:
        found: list[Sample | Event] = []
        async for _, message in client.follow("0-0"):
            found.append(message)
            kinds = {type(item) for item in found}
            if kinds == {Sample, Event}:
                return found
        return found

    found = asyncio.run(asyncio.wait_for(collect(), 30))
    sample = next(item for item in found if isinstance(item, Sample))
    assert sample.worker_id == "w1"
    assert sample.memory_bytes > 10_000_000


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (("--pool", "solo", "-Q", "worker.w1"), {}, "start it with --pool threads"),
        (("--pool", "threads", "-Q", "other"), {}, "start it with -Q worker.w1"),
        ((), {"CONCH_MODEL_REPOSITORY": ""}, "CONCH_MODEL_REPOSITORY is not set"),
        ((), {"CONCH_MODEL_REPOSITORY": os.devnull}, "is not a valid directory"),
        ((), {"CONCH_HTTP_PORT": "x"}, "CONCH_HTTP_PORT is 'x'"),
    ],
)
def test_worker_that_cannot_serve_ends_and_says_why(
    start_worker, options: tuple[str, ...], environment: dict[str, str], words: str
):
    worker = start_worker(options=options, **environment)
    assert worker.process.wait(30) == 1
    assert words in worker.log
    assert "Traceback" not in worker.log


def test_taken_port_ends_the_worker_with_its_number(start_worker):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        worker = start_worker(CONCH_HTTP_PORT=port)
        assert worker.process.wait(30) == 1
        assert port in worker.log
        assert "Traceback" not in worker.log
