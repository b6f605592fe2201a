"""Servers as child processes, and what CPU time their process trees used."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_START_TIMEOUT_S = 60.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and where it listens."""

    name: str
    pid: int
    http_port: int
    grpc_port: int = 0
    ports: Mapping[str, int] = field(default_factory=dict)
    """All of them, by the name in the log."""

    def cpu_s(self) -> float:
        """User and system time so far of the process and all its descendants."""
        return sum(_cpu_s(pid) for pid in _tree(self.pid))

    def holdings(self) -> Holdings:
        """What the process holds now."""
        proc = Path(f"/proc/{self.pid}")
        children = [pid for pid in _tree(self.pid) if pid != self.pid]
        return Holdings(
            rss_kib=_rss_kib(self.pid),
            threads=len(os.listdir(proc / "task")),
            descriptors=len(os.listdir(proc / "fd")),
            processes=len(children),
            children_rss_kib=sum(map(_rss_kib, children)),
        )


@dataclass(frozen=True, slots=True)
class Holdings:
    rss_kib: int
    threads: int
    descriptors: int
    """Files, sockets, and the shared memory of instance processes, which has no name."""
    processes: int
    """Children, and their children."""
    children_rss_kib: int = 0
    """Of all of them."""


@contextmanager
def conch(
    repository: Path,
    *options: str,
    log: bytearray | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """`log`: gets what the server logs after its start; all of it when the block has been left.

    `environment` is added to this process's own.
    """
    arguments = ["-m", "serving", f"--model-repository={repository}", "--metrics-port=0", *options]
    arguments += ["--http-port=0", "--grpc-port=0"]
    with _run(arguments, r"\| Model", log, environment) as (pid, text):
        found = re.findall(r"(HTTP|gRPC|OpenAI|SageMaker|Vertex AI) on \S+:(\d+)", text)
        ports = {name: int(port) for name, port in found}
        yield Server("conch", pid, ports["HTTP"], ports["gRPC"], ports)


@contextmanager
def reference() -> Iterator[Server]:
    """uvicorn with a raw ASGI callable that echoes the body: the yardstick of every run."""
    arguments = ["-m", "uvicorn", "benchmarks.echo:app", "--port=0", "--loop=uvloop"]
    pattern = r"running on http://127\.0\.0\.1:(\d+)"
    with _run([*arguments, "--http=httptools", "--no-access-log"], pattern) as (pid, log):
        found = re.search(pattern, log)
        assert found is not None
        yield Server("uvicorn echo", pid, int(found[1]))


@contextmanager
def _run(
    arguments: list[str],
    ready: str,
    kept: bytearray | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, str]]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stderr=subprocess.PIPE,
        env=os.environ | dict(environment or {}),
    )
    drain: threading.Thread | None = None
    try:
        log = _read_until(process, ready)
        # Whether or not anybody looks at the rest: a full pipe would stop the server.
        drain = threading.Thread(target=_drain, args=(process, kept), daemon=True)
        drain.start()
        yield process.pid, log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if drain is not None:
            drain.join(timeout=5)


def _drain(process: subprocess.Popen[bytes], kept: bytearray | None) -> None:
    assert process.stderr is not None
    with process.stderr as stream:
        while data := os.read(stream.fileno(), 65536):
            if kept is not None:
                kept += data


def _read_until(process: subprocess.Popen[bytes], pattern: str) -> str:
    assert process.stderr is not None
    descriptor = process.stderr.fileno()
    log = ""
    deadline = time.monotonic() + _START_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not re.search(pattern, log):
            if not selector.select(deadline - time.monotonic()):
                raise TimeoutError(f"the server was not ready within {_START_TIMEOUT_S} s:\n{log}")
            data = os.read(descriptor, 65536)
            if not data:
                raise RuntimeError(f"the server ended:\n{log}")
            log += data.decode("utf-8", "replace")
    return log


def tree_cpu_s(root: int | None = None) -> float:
    """User and system time so far of a process (this one) and all its descendants."""
    return sum(_cpu_s(pid) for pid in _tree(root or os.getpid()))


def _tree(root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                waiting += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _rss_kib(pid: int) -> int:
    try:
        rss = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(rss[1]) if rss is not None else 0


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S
