"""The local cache of model files: each content once, whatever its name, within a size limit.

Blobs are named by their SHA-256; references lead from what a store tells about an object (its MD5,
or URL, ETag, size and time) to a blob. A model's directory holds hard links to blobs, so a link
count above one means "in use" to every process, and dropping a blob breaks nobody. Blocking;
loading threads of several processes enter at once: files appear by rename, locks are `flock`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from serving.errors import InvalidArgumentError, UnavailableError

logger = logging.getLogger(__name__)

TAG = "CACHEDIR.TAG"
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# Model files cached by Conch.\n"
_POLL_LOCK_S = 0.1
_PARTIAL_LIVES_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Blob:
    path: Path
    size: int
    used_ns: int
    is_in_use: bool


class BlobCache:
    """`max_bytes` 0: nothing is kept but what a loaded model uses."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """Raises InvalidArgumentError when the directory cannot be made or written."""
        self.directory = directory
        self.max_bytes = max_bytes
        self._blobs = directory / "blobs"
        self._refs = directory / "refs"
        self._partial = directory / "partial"
        try:
            for path in (self._blobs, self._refs, self._partial):
                path.mkdir(parents=True, exist_ok=True)
            tag = directory / TAG
            if not tag.exists():
                _write_at_once(tag, _TAG_TEXT.encode())
        except OSError as error:
            raise InvalidArgumentError(
                f"the cache of cloud models cannot be kept in '{directory}': {error.strerror}; "
                "name a directory that can be written with --cloud-cache-directory"
            ) from error

    def find(self, keys: Sequence[str]) -> Path | None:
        """The blob of one of `keys`, whole and unharmed; counts as a use."""
        for key in keys:
            try:
                noted = json.loads(self._ref(key).read_bytes())
                path = self._blob(noted["sha256"])
                stat = path.stat()
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if (stat.st_size, stat.st_mtime_ns) == (noted["size"], noted["mtime_ns"]):
                os.utime(path, ns=(time.time_ns(), stat.st_mtime_ns))
                return path
            logger.warning("a cached model file was changed or cut off; it is fetched again")
            path.unlink(missing_ok=True)
        return None

    def link(self, blob: Path, target: Path) -> None:
        """Make `target` a name of the blob. Raises FileNotFoundError when it was just dropped."""
        try:
            os.link(blob, target)
        except FileNotFoundError:
            raise
        except OSError:
            # No hard links here, or too many of them: a copy serves as well.
            shutil.copyfile(blob, target)

    @contextmanager
    def partial(self, key: str, stop: threading.Event) -> Iterator[BinaryIO]:
        """What is there of a broken download, open for more; one writer at a time anywhere."""
        with locked(self._partial / _digest(key), stop) as file:
            yield file

    def keep(self, file: BinaryIO, sha256: str, keys: Sequence[str]) -> Path:
        """Turn a finished `partial` into a blob that `keys` lead to."""
        file.flush()
        os.fsync(file.fileno())
        path = self._blob(sha256)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            os.chmod(file.fileno(), 0o444)
            os.replace(file.name, path)
        else:
            os.unlink(file.name)
        stat = path.stat()
        noted = {"sha256": sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        for key in keys:
            ref = self._ref(key)
            ref.parent.mkdir(exist_ok=True)
            _write_at_once(ref, json.dumps(noted).encode())
        return path

    def trim(self, coming_bytes: int = 0) -> int:
        """Drop what was used longest ago until `coming_bytes` more fit. Returns bytes freed.

        What a loaded model uses would free nothing; it stays.
        """
        with try_locked(self.directory / "trim.lock") as is_mine:
            if not is_mine:
                return 0
            blobs = sorted(self._all(), key=lambda blob: blob.used_ns)
            surplus = sum(blob.size for blob in blobs) + coming_bytes - self.max_bytes
            freed = 0
            for blob in blobs:
                if freed >= surplus:
                    break
                if not blob.is_in_use or self.max_bytes == 0:
                    blob.path.unlink(missing_ok=True)
                    freed += blob.size
            self._sweep()
        if freed:
            logger.info("%d MB of cached model files were dropped", freed // 1_000_000)
        return freed

    @property
    def size_bytes(self) -> int:
        return sum(blob.size for blob in self._all())

    def _sweep(self) -> None:
        """References to nothing, and downloads that nobody went on with."""
        for ref in self._refs.glob("*/*"):
            try:
                is_dangling = not self._blob(json.loads(ref.read_bytes())["sha256"]).exists()
            except (OSError, ValueError, KeyError, TypeError):
                is_dangling = ref.suffix != ".new"
            if is_dangling:
                ref.unlink(missing_ok=True)
        oldest = time.time() - _PARTIAL_LIVES_S
        for path in self._partial.iterdir():
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)
            except FileNotFoundError:
                continue

    def _all(self) -> list[Blob]:
        blobs = []
        for path in self._blobs.glob("*/*"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            blobs.append(Blob(path, stat.st_size, stat.st_atime_ns, stat.st_nlink > 1))
        return blobs

    def _blob(self, sha256: str) -> Path:
        return self._blobs / sha256[:2] / sha256

    def _ref(self, key: str) -> Path:
        digest = _digest(key)
        return self._refs / digest[:2] / digest


@contextmanager
def locked(path: Path, stop: threading.Event) -> Iterator[BinaryIO]:
    """`path` open for reading and appending, this caller's alone until the end of the block.

    Waits while another thread or process has it. Raises UnavailableError when `stop` is set first.
    """
    while True:
        file = open(path, "a+b")  # noqa: SIM115 - closed below, or handed out
        try:
            if _lock(file) and _is_still(file, path):
                yield file
                return
        finally:
            file.close()
        if stop.wait(_POLL_LOCK_S):
            raise UnavailableError("the download was given up")


def _lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(file: BinaryIO, path: Path) -> bool:
    """Its last owner may have moved or removed it while we waited."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def try_locked(path: Path) -> Iterator[bool]:
    """True for the one caller who gets the lock now; the others do not wait."""
    with path.open("a+b") as file:
        yield _lock(file)


def _write_at_once(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
