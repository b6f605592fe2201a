"""One cloud repository as a store of objects: list, read a range, look at one.

Every answer has a deadline; what may pass is tried again; what does not is one sentence on what,
where, and how to mend it. A refusal makes the credentials be read afresh once. Blocking, loading
threads; several may enter at once.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, TypeVar

from serving.errors import InvalidArgumentError, ServingError, UnavailableError
from serving.repository.cloud import faults
from serving.repository.cloud.credentials import Credentials
from serving.repository.cloud.filesystem import FileSystem, open_filesystem
from serving.repository.cloud.url import CloudUrl

logger = logging.getLogger(__name__)
T = TypeVar("T")
Opener = Callable[[CloudUrl, dict[str, str], float], FileSystem]

_PAUSES_S = (0.2, 1.0)
_GLANCE_S = 0.2
_NEVER = threading.Event()
_LIST_FACTOR = 4
"""A listing is many answers, one for each thousand objects."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """An object below the place that was listed."""

    path: str
    """Relative to that place; ends with "/" for a placeholder of a directory."""
    key: str
    """Path within the file system."""
    size: int
    modified_ns: int = 0
    etag: str = ""
    md5: str = ""
    """Hexadecimal, where the store tells one; S3 only seems to, see `is_proven`."""

    @property
    def stamp(self) -> int:
        """Moves with every write, also where times are whole seconds."""
        text = f"{self.modified_ns} {self.etag}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


class ObjectStore:
    def __init__(
        self,
        url: CloudUrl,
        credentials: Credentials,
        *,
        timeout_s: float = 30.0,
        opener: Opener = open_filesystem,
    ) -> None:
        self.url = url
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._opener = opener
        self._lock = threading.Lock()
        self._filesystem: FileSystem | None = None
        self._is_anonymous = False

    def names(self) -> list[str]:
        """Names of the directories directly in the repository.

        Raises: InvalidArgumentError when there is no such bucket or path; UnavailableError.
        """
        key = self.url.key
        try:
            entries = self._ask("ls", key, detail=True, seconds=self._timeout_s * _LIST_FACTOR)
        except FileNotFoundError as error:
            raise self._nothing_there() from error
        names = {_below(entry["name"], key) for entry in entries if entry["type"] == "directory"}
        return sorted(name for name in names if name and not name.startswith("."))

    def files(self, url: CloudUrl, *, must_exist: bool = False) -> list[RemoteFile]:
        """Every object below `url`, which may be none; keys that lead outside are left out.

        Raises: InvalidArgumentError for a bucket that is not there, with `must_exist`.
        """
        try:
            found = self._ask("find", url.key, detail=True, seconds=self._timeout_s * _LIST_FACTOR)
        except FileNotFoundError as error:
            if must_exist:
                raise self._nothing_there() from error
            return []
        files = []
        for key, entry in (found if isinstance(found, dict) else {}).items():
            path = _below(key, url.key)
            if path is None or entry["type"] != "file" or not path.strip("/"):
                continue
            if not _is_confined(path):
                logger.warning("'%s' in '%s' is no usable file name; it is ignored", path, url)
                continue
            files.append(_remote_file(path, key, entry))
        return sorted(files, key=lambda item: item.path)

    def look(self, file: RemoteFile) -> RemoteFile | None:
        """The object as it is now; None: it is gone."""
        try:
            entry = self._ask("info", file.key, seconds=self._timeout_s)
        except FileNotFoundError:
            return None
        return _remote_file(file.path, file.key, entry)

    def read(
        self, file: RemoteFile, ranges: Sequence[tuple[int, int]], stop: threading.Event
    ) -> list[bytes]:
        """Byte ranges [start, end) of one object, fetched side by side.

        Raises: FileNotFoundError when it is gone; UnavailableError, soon after `stop` is set too.
        """
        return self._attempt(
            lambda filesystem: _read_ranges(filesystem, file.key, ranges, self._timeout_s, stop),
            f"reading '{file.path}'",
            stop,
        )

    def _ask(self, method: str, *args: Any, seconds: float, **options: Any) -> Any:
        return self._attempt(
            lambda filesystem: _call(filesystem, method, *args, seconds=seconds, **options),
            "listing" if method != "info" else "looking at a file",
        )

    def _attempt(
        self, work: Callable[[FileSystem], T], what: str, stop: threading.Event = _NEVER
    ) -> T:
        """Raises FileNotFoundError as it is, everything else as ServingError."""
        pauses = list(_PAUSES_S)
        may_reopen = True
        while True:
            try:
                return work(self._opened())
            except (FileNotFoundError, ServingError):
                raise
            except Exception as error:
                fault = faults.classify(error)
                if fault is faults.Fault.REFUSED and may_reopen:
                    may_reopen = False
                    self._reopen(error)
                elif fault is faults.Fault.PASSING and pauses:
                    if faults.is_timeout(error):
                        pauses = pauses[-1:]  # Long enough ago: once more, not twice.
                    logger.info("%s '%s' is tried again: %s", what, self.url, faults.told(error))
                    if stop.wait(pauses.pop(0)):
                        raise given_up() from error
                else:
                    raise self._explained(error, fault, what) from error

    def _opened(self) -> FileSystem:
        with self._lock:
            if self._filesystem is None:
                known = self._credentials.of(self.url)
                if self._is_anonymous:
                    known["anon"] = "true"
                self._filesystem = self._opener(self.url, known, self._timeout_s)
            return self._filesystem

    def _reopen(self, error: Exception) -> None:
        """With what the credential file and the environment say now."""
        with self._lock:
            self._filesystem = None
            # Nobody's bucket may be everybody's.
            self._is_anonymous = self.url.scheme == "s3" and faults.lacks_credentials(error)

    def _explained(self, error: Exception, fault: faults.Fault, what: str) -> ServingError:
        place = f"model repository '{self.url}'"
        told = faults.told(error)
        if fault is faults.Fault.REFUSED:
            return UnavailableError(
                f"{what} of {place} was refused: {told}; "
                f"{self._credentials.hint(self.url)}, and see that it may list and read the "
                f"{_kind(self.url)}"
            )
        if fault is faults.Fault.PASSING:
            where = f" at {self.url.endpoint}" if self.url.endpoint else ""
            return UnavailableError(
                f"{what} of {place} failed: the store{where} cannot be reached or does not answer "
                f"within {self._timeout_s:g} s ({told}); check the network, the host and the port"
            )
        return UnavailableError(f"{what} of {place} failed: {told}; check URL and endpoint")

    def _nothing_there(self) -> InvalidArgumentError:
        if self.url.prefix:
            return InvalidArgumentError(
                f"model repository '{self.url}' is not a valid directory: there is no "
                f"{_kind(self.url)} '{self.url.bucket}', or nothing lies below "
                f"'{self.url.prefix}/' in it; correct the URL, or upload a model first"
            )
        return InvalidArgumentError(
            f"model repository '{self.url}' is not a valid directory: there is no "
            f"{_kind(self.url)} '{self.url.bucket}'; create it, or correct the URL"
        )


def _kind(url: CloudUrl) -> str:
    return "container" if url.scheme == "as" else "bucket"


def _call(filesystem: FileSystem, method: str, *args: Any, seconds: float, **options: Any) -> Any:
    asynchronous = getattr(filesystem, f"_{method}", None)
    if not inspect.iscoroutinefunction(asynchronous):
        return getattr(filesystem, method)(*args, **options)
    return _in_time(filesystem, asynchronous(*args, **options), seconds, _NEVER)


def _in_time(
    filesystem: FileSystem, work: Coroutine[Any, Any, T], seconds: float, stop: threading.Event
) -> T:
    """Run a coroutine on the thread of fsspec. Raises TimeoutError; UnavailableError on `stop`."""
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), filesystem.loop)
    while not wait([future], _GLANCE_S).done:
        if stop.is_set():
            future.cancel()
            raise given_up()
    return future.result()


def given_up() -> UnavailableError:
    return UnavailableError("the download was given up")


def _read_ranges(
    filesystem: FileSystem,
    key: str,
    ranges: Sequence[tuple[int, int]],
    seconds: float,
    stop: threading.Event,
) -> list[bytes]:
    asynchronous = getattr(filesystem, "_cat_file", None)
    if not inspect.iscoroutinefunction(asynchronous):
        return [filesystem.cat_file(key, start=start, end=end) for start, end in ranges]

    async def gather() -> list[bytes]:
        reads = (asynchronous(key, start=start, end=end) for start, end in ranges)
        return list(await asyncio.gather(*reads))

    return _in_time(filesystem, gather(), seconds, stop)


def _below(key: str, place: str) -> str | None:
    """`key` relative to `place`; None when it lies elsewhere."""
    start = place.strip("/") + "/"
    key = key.lstrip("/")
    return key[len(start) :] if key.startswith(start) else None


def _is_confined(path: str) -> bool:
    parts = path.removesuffix("/").split("/")
    return not any(part in ("", ".", "..") or len(part) > 255 for part in parts) and not (
        "\0" in path or "\\" in path
    )


def _remote_file(path: str, key: str, entry: dict[str, Any]) -> RemoteFile:
    etag = str(entry.get("ETag") or entry.get("etag") or "").strip('"')
    return RemoteFile(
        path,
        key,
        int(entry.get("size") or 0),
        _nanoseconds(_modified(entry)),
        etag or str(entry.get("generation") or ""),
        _md5(entry, etag),
    )


def _modified(entry: dict[str, Any]) -> Any:
    for name in ("LastModified", "mtime", "last_modified", "updated", "created"):
        if entry.get(name):
            return entry[name]
    return None


def _nanoseconds(value: Any) -> int:
    if isinstance(value, datetime.datetime):
        return int(value.timestamp() * 1_000_000) * 1000
    if isinstance(value, (int, float)):
        return int(value * 1_000_000_000)
    return 0


def _md5(entry: dict[str, Any], etag: str) -> str:
    """Azure and Google tell an MD5; the ETag of S3 is one unless parts or KMS were used."""
    settings = entry.get("content_settings")
    told = entry.get("md5Hash") or getattr(settings, "content_md5", None)
    if isinstance(told, (bytes, bytearray)):
        return bytes(told).hex()
    if isinstance(told, str):
        return base64.b64decode(told).hex()
    is_digest = len(etag) == 32 and all(digit in "0123456789abcdef" for digit in etag)
    return etag if is_digest and "ETag" in entry else ""
