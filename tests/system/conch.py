"""A whole Conch, started as a person starts it: `manage.py up` in a fresh data directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
START_SECONDS = 90
CLEARED = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE")


class RunningConch:
    """All processes of one Conch. Its output is collected line by line in `lines`."""

    def __init__(self, data_directory: Path, demo: Path | None) -> None:
        web, self.http_port, self.grpc_port, metrics = free_ports(4)
        self.address = f"http://127.0.0.1:{web}"
        self.data_directory = data_directory
        self.lines: list[str] = []
        argv = [
            *(sys.executable, "manage.py", "up", "--port", str(web)),
            *("--worker-http-port", str(self.http_port)),
            *("--worker-grpc-port", str(self.grpc_port)),
            *("--worker-metrics-port", str(metrics)),
            *(("--demo", str(demo)) if demo else ()),
        ]
        environment = {key: value for key, value in os.environ.items() if key not in CLEARED}
        environment |= {
            "CONCH_DATA_DIR": str(data_directory),
            "CONCH_WORKER_ID": "test-worker",
            "PYTHONUNBUFFERED": "1",
        }
        self._process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_until_up(self) -> None:
        self.wait_for(lambda: self.line("Ctrl-C stops everything"), START_SECONDS)

    def wait_for(self, condition: Callable[[], object], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._process.poll() is None, "\n".join(self.lines)
            assert time.monotonic() < deadline, "\n".join([*self.lines, self.logs()])
            time.sleep(0.1)

    def line(self, text: str) -> str:
        return next((line for line in reversed(self.lines) if text in line), "")

    @property
    def password(self) -> str:
        match = re.search(r"First login: admin / (\S+)", "\n".join(self.lines))
        assert match is not None, self.lines
        return match.group(1)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pid_of(self, name: str) -> int:
        match = re.search(r"pid (\d+)", self.line(f"{name:<8} ready"))
        assert match is not None, self.lines
        return int(match.group(1))

    def logs(self) -> str:
        folder = self.data_directory / "logs"
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}" for path in folder.glob("*.log")
        )

    def logged_in(self) -> httpx.Client:
        """A client with the first administrator's session, as a browser has it."""
        client = httpx.Client(base_url=self.address, follow_redirects=True, timeout=20)
        page = client.get("/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token is not None
        fields = {
            "username": "admin",
            "password": self.password,
            "csrfmiddlewaretoken": token.group(1),
        }
        answer = client.post("/login/", data=fields, headers={"Referer": f"{self.address}/login/"})
        assert "conch_session" in client.cookies, answer.text[:500]
        return client

    def stop(self) -> int:
        """Ctrl-C. Returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(60)
        finally:
            if self._process.poll() is None:
                self._process.kill()
            self._reader.join(5)
            if self._process.stdout is not None:
                self._process.stdout.close()
