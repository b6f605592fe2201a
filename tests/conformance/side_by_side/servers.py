"""Starts the two servers for a stand: a real Triton by a script of the caller, and this server.

The script is named by TRITON_SCRIPT. It is called with the model repository and Triton's options,
and takes the ports from HTTP_PORT, GRPC_PORT and METRICS_PORT.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.side_by_side import repository
from tests.conformance.side_by_side.drive import Server
from tests.conformance.side_by_side.scenario import Stand
from tests.ports import free_ports

_START_S = 240.0
_PAUSE_S = 0.1
_STOP_S = 30.0


@contextlib.contextmanager
def triton(stand: Stand, models: set[str]) -> Iterator[Server]:
    """Raises: RuntimeError when it does not start; SystemExit without TRITON_SCRIPT."""
    script = os.environ.get("TRITON_SCRIPT")
    if not script:
        raise SystemExit(
            "no Triton to compare with: name a script that starts one in TRITON_SCRIPT, or give "
            "the addresses of a running one with --triton"
        )
    with _repository(models) as folder:
        ports = dict(zip(("HTTP_PORT", "GRPC_PORT", "METRICS_PORT"), free_ports(3), strict=True))
        environment = {name: str(port) for name, port in ports.items()}
        options = ["--exit-on-error=false", "--strict-readiness=false", *stand.options]
        command = [script, str(folder), *options]
        with _running(command, stand, environment, folder.parent / "triton.log") as process:
            yield _ready(process, list(ports.values()), folder.parent / "triton.log")


@contextlib.contextmanager
def conch(stand: Stand, models: set[str]) -> Iterator[Server]:
    """Raises: RuntimeError when it does not start."""
    with _repository(models) as folder:
        ports = free_ports(3)
        names = ("--http-port", "--grpc-port", "--metrics-port")
        options = [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
        options += ["--exit-on-error=false", "--strict-readiness=false", *stand.options]
        command = [sys.executable, "-m", "serving", f"--model-repository={folder}", *options]
        with _running(command, stand, {}, folder.parent / "conch.log") as process:
            yield _ready(process, ports, folder.parent / "conch.log")


@contextlib.contextmanager
def _repository(models: set[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "models"
        folder.mkdir()
        repository.write(models, folder)
        yield folder


@contextlib.contextmanager
def _running(
    command: list[str], stand: Stand, environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment | dict(stand.environment),
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ready(process: subprocess.Popen[bytes], ports: list[int], log: Path) -> Server:
    deadline = time.monotonic() + _START_S
    while not _answers(ports[0]):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-4000:]
            raise RuntimeError(f"the server did not become ready; the end of its log:\n{tail}")
        time.sleep(_PAUSE_S)
    _tell_unavailable(ports[0])
    return Server(*(f"127.0.0.1:{port}" for port in ports))


def _tell_unavailable(port: int) -> None:
    """A model that was refused explains the scenarios that differ."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/repository/index", b"{}", method="POST"
    )
    with urllib.request.urlopen(asked) as answer:
        for row in json.load(answer):
            if row.get("state") != "READY":
                sys.stderr.write(f"{row['name']}: {row.get('reason', 'not loaded')}\n")


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False
