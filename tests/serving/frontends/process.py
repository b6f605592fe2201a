"""A real `python -m serving` on free ports, for tests that talk to it as a client does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.waiting import wait_until_blocking

_PORTS = re.compile(r"(HTTP|gRPC|metrics) on 127\.0\.0\.1:(\d+)")


@dataclass
class ServerProcess:
    """Use as a context manager; ready when entered."""

    arguments: tuple[str, ...]
    start_timeout_s: float = 60.0
    ready_text: str = "| Model"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own."""
    log: list[str] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> ServerProcess:
        ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serving", *ports, *self.arguments],
            stderr=subprocess.PIPE,
            env=os.environ | dict(self.environment),
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            wait_until_blocking(self._is_settled, self.start_timeout_s)
            assert self._process.poll() is None, "".join(self.log)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_settled(self) -> bool:
        is_ready = any(self.ready_text in line for line in list(self.log))
        return is_ready or self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            match = _PORTS.search(line)
            if match:
                self.ports[match[1]] = int(match[2])
            self.log.append(line)

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._reader.join(5)
        if self._process.stderr is not None:
            self._process.stderr.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.ports['HTTP']}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.ports['gRPC']}"

    @property
    def metrics(self) -> str:
        return f"127.0.0.1:{self.ports['metrics']}"
