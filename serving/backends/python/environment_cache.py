"""Where environments of Python models are kept: made once, leased while used, dropped when old.

One directory for each key, with two lock files beside it that stay. Whoever makes or uses an
environment shares `.lock`, who drops it holds that alone; `.making` lets one at a time make it. In
any process of the machine. Blocks; loading threads of the worker only.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger("serving.models")

_READY = ".conch-ready"
_DAY_S = 86_400.0


class Lease:
    """An open lock; the environment stays as long as this object lives."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def hold_alone(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def try_alone(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)


class EnvironmentCache:
    def __init__(self, root: Path, keep_days: float) -> None:
        self._root = root
        self._keep_days = keep_days

    def get(
        self, key: str, fill: Callable[[Path], None], tell: Callable[[], object]
    ) -> tuple[Path, Lease]:
        """The directory of the key; `fill` makes it, after `tell`, unless it has been made.

        Raises: OSError, and what `fill` raises.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        target = self._root / hashlib.sha256(key.encode()).hexdigest()[:32]
        lease = Lease(target.with_suffix(".lock"))
        lease.share()
        if not (target / _READY).exists():
            tell()  # it is made now, here or by another
            # A lock of its own: whoever waits for it must not wait for the end of another's use.
            making = Lease(target.with_suffix(".making"))
            making.hold_alone()
            if not (target / _READY).exists():
                shutil.rmtree(target, ignore_errors=True)  # left by one that did not finish
                fill(target)
                (target / _READY).touch()
                self._drop_old()
        os.utime(target / _READY)
        return target, lease

    def _drop_old(self) -> None:
        """Remove what nobody has used for so long; when one is added, so that they stay few."""
        for lock in self._root.glob("*.lock"):
            target = lock.with_suffix("")
            if _age_days(target) <= self._keep_days:
                continue
            lease = Lease(lock)
            # The second look: somebody may have taken it since.
            if lease.try_alone() and _age_days(target) > self._keep_days:
                shutil.rmtree(target, ignore_errors=True)
                logger.info("dropped the environment %s: not used for long", target.name)


def _age_days(target: Path) -> float:
    """Since its last use, or since it was left unfinished; 0 if it is not there."""
    for path in (target / _READY, target):
        try:
            return (time.time() - path.stat().st_mtime) / _DAY_S
        except OSError:
            continue
    return 0.0
