"""Directories of loaded models, which live as long as the process: made, and swept after a crash.

Each process has its own directory in the cache and holds a lock beside it; a lock that nobody holds
tells that its owner is gone and the directory can go too. Blocking; loading threads.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path

from serving.repository.cloud.cache import locked, try_locked

_LOCK = ".lock"


class Session:
    """Its own thread-safe numbering; `close` removes what is left."""

    def __init__(self, cache_directory: Path) -> None:
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        parent = cache_directory / "sessions"
        parent.mkdir(exist_ok=True)
        _sweep(parent)
        for number in itertools.count():
            name = f"{os.getpid()}-{number}"
            if self._take(parent, name):
                break

    def _take(self, parent: Path, name: str) -> bool:
        lock = parent / f"{name}{_LOCK}"
        if lock.exists():  # Another server in this process, or one behind another PID namespace.
            return False
        self._stack.enter_context(locked(lock, threading.Event()))
        self._lock_path = lock
        self.directory = parent / name
        self.directory.mkdir(exist_ok=True)
        return True

    def place_for(self, name: str) -> Path:
        """Where the next copy of a model is to be; nothing is made yet."""
        return self.directory / str(next(self._numbers)) / name

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        self._stack.close()


def _sweep(parent: Path) -> None:
    for lock in parent.glob(f"*{_LOCK}"):
        with try_locked(lock) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
