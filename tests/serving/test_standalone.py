"""`python -m serving` as a process: exit codes, signals, ports."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.model_files import write_identity
from tests.waiting import wait_until_blocking

ANY_PORTS = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")


class Process:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serving", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str) -> re.Match[str]:
        wait_until_blocking(
            lambda: re.search(pattern, self.log) or self.process.poll() is not None, 30
        )
        found = re.search(pattern, self.log)
        assert found, self.log
        return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wait_for(r'HTTP on 127.0.0.1:([0-9]+)')[1]}"

    def status(self, path: str, body: dict[str, Any] | None = None) -> int:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(self.url + path, data, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def send_infer(self) -> socket.socket:
        """A connection on which model `m` has accepted a request."""
        address, _, port = self.url.removeprefix("http://").partition(":")
        client = socket.create_connection((address, int(port)), timeout=10)
        body = json.dumps(BODY).encode()
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        # One event loop: an answer to a later request means that the earlier one has been read.
        for _ in range(3):
            assert self.status("/v2/health/live") == 200
        return client

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(20)
        self._reader.join(5)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def run() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def start(*arguments: str) -> Process:
        processes.append(Process(*arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_serves_until_a_signal_and_exits_with_0(run, tmp_path: Path, number):
    write_identity(tmp_path, "m")
    server = run(f"--model-repository={tmp_path}", *ANY_PORTS)
    server.wait_for(r"\| m +\| 1 +\| READY")

    assert server.status("/v2/health/ready") == 200
    assert server.status("/v2/models/m/infer", BODY) == 200
    assert server.end(number) == 0
    assert "model 'm' version 1 is unloaded" in server.log


def test_signal_lets_an_accepted_request_finish(run, tmp_path: Path):
    write_identity(tmp_path, "m", delay_ms=1000)
    server = run(f"--model-repository={tmp_path}", *ANY_PORTS)
    server.wait_for("READY")

    with server.send_infer() as client:
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping: not ready")
        assert server.status("/v2/health/ready") == 400
        assert server.status("/v2/models/m/infer", BODY) == 503
        assert server.wait() == 0
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")


def test_second_signal_forces_the_exit(run, tmp_path: Path):
    write_identity(tmp_path, "m", delay_ms=20_000)
    server = run(f"--model-repository={tmp_path}", *ANY_PORTS)
    server.wait_for("READY")

    with server.send_infer():
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping: not ready")
        assert server.end(signal.SIGTERM) == 1
    assert "SIGTERM again: exiting at once" in server.log


def test_request_that_outlives_the_exit_timeout_is_answered_and_the_code_is_1(run, tmp_path: Path):
    write_identity(tmp_path, "m", delay_ms=20_000)
    server = run(f"--model-repository={tmp_path}", "--exit-timeout-secs=0", *ANY_PORTS)
    server.wait_for("READY")

    with server.send_infer() as client:
        assert server.end() == 1
        answer = client.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"server is stopping" in answer
    assert "error: exit timeout expired" in server.log


def test_failed_load_exits_with_1_and_says_which_model_and_line(run, tmp_path: Path):
    write_identity(tmp_path, "bad", extra="max_batch_sise: 1\n")
    server = run(f"--model-repository={tmp_path}", *ANY_PORTS)
    assert server.wait() == 1
    assert "error: failed to load all models: load failed for model 'bad': config.pbtxt:5:1" in (
        server.log
    )


def test_missing_repository_exits_with_1(run, tmp_path: Path):
    server = run(f"--model-repository={tmp_path}/nope", *ANY_PORTS)
    assert server.wait() == 1
    assert "nope' is not a valid directory" in server.log


def test_bad_option_exits_with_1_and_usage(run):
    server = run("--model-repositroy=/x")
    assert server.wait() == 1
    assert "did you mean --model-repository?" in server.log
    assert "usage: python -m serving" in server.log


def test_taken_port_exits_with_1_and_names_it(run, tmp_path: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = run(f"--model-repository={tmp_path}", *ANY_PORTS[1:], f"--http-port={port}")
        assert server.wait() == 1
        assert "Traceback" not in server.log
        last = server.log.splitlines()[-1]
        assert f"{port}" in last
        assert last.startswith("error: cannot listen: Address already in use")
        assert "--http-port" in last


def test_help_goes_to_stdout_with_0(run):
    server = run("--help")
    assert server.process.stdout is not None
    assert "--model-repository" in server.process.stdout.read()
    assert server.wait() == 0


def test_records_go_to_a_log_file_that_may_be_moved_away(run, tmp_path: Path):
    (tmp_path / "models").mkdir()
    write_identity(tmp_path / "models", "m")
    log = tmp_path / "server.log"
    server = run(f"--model-repository={tmp_path / 'models'}", f"--log-file={log}", *ANY_PORTS)
    wait_until_blocking(lambda: log.exists() and "READY" in log.read_text(), 30)

    log.rename(tmp_path / "server.log.1")
    assert server.end() == 0

    assert "model 'm' version 1 is unloaded" in log.read_text()
    assert not server.log


def test_a_log_file_that_cannot_be_opened_exits_with_1(run, tmp_path: Path):
    server = run(f"--model-repository={tmp_path}", f"--log-file={tmp_path}/no/log")
    assert server.wait() == 1
    assert f"error: --log-file={tmp_path}/no/log: No such file or directory" in server.log
