"""Brings the objects of a model into the cache: side by side, in ranges, from where it stopped.

A broken download leaves what it got, under a name that stands for exactly this object; the next one
goes on there. Blocking: one loading thread enters and brings its own helpers.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from serving.errors import UnavailableError
from serving.repository.cloud.cache import BlobCache
from serving.repository.cloud.store import ObjectStore, RemoteFile, given_up

logger = logging.getLogger(__name__)

_RANGE_BYTES = 4 * 1024 * 1024
_RANGES_AT_ONCE = 4
_FILES_AT_ONCE = 4
_TELL_EVERY_S = 1.0
_LOG_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the download of a model is."""

    url: str
    total_bytes: int
    done_bytes: int
    """Of which some may have been in the cache."""
    fetched_bytes: int = 0
    """What came over the network."""

    def __str__(self) -> str:
        percent = 100 * self.done_bytes // self.total_bytes if self.total_bytes else 100
        return (
            f"downloading from {self.url}: {_amount(self.done_bytes)} of "
            f"{_amount(self.total_bytes)}, {percent} %"
        )


OnProgress = Callable[[Progress], None]


class Download:
    """One model's download; `stop` ends it between two ranges, and is set when it fails."""

    def __init__(
        self,
        store: ObjectStore,
        cache: BlobCache,
        url: str,
        stop: threading.Event,
        on_progress: OnProgress,
    ) -> None:
        self._store = store
        self._cache = cache
        self._url = url
        self._stop = stop
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._done = self._fetched = self._total = self._files = 0
        self._started_at = self._told_at = self._logged_at = time.monotonic()

    def run(self, files: Sequence[RemoteFile], place: Callable[[RemoteFile, Path], None]) -> None:
        """Every file into the cache, and from there by `place` to where it is wanted.

        May be called again for more files.

        Raises: UnavailableError, also when an object changed meanwhile.
        """
        coming = sum(file.size for file in files)
        self._total += coming
        self._files += len(files)
        self._tell(force=True)
        self._cache.trim(coming)
        with ThreadPoolExecutor(_FILES_AT_ONCE, "download") as pool:
            jobs = [pool.submit(self._bring, file, place) for file in files]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                # The others stop at their next range; what they have is kept.
                self._stop.set()
                for job in jobs:
                    job.cancel()
                raise
        self._tell(force=True)
        self._cache.trim()

    def log_end(self) -> None:
        logger.info(
            "%s: %d files, %s, of which %s downloaded in %.1f s",
            self._url,
            self._files,
            _amount(self._total),
            _amount(self._fetched),
            time.monotonic() - self._started_at,
        )

    def _bring(self, file: RemoteFile, place: Callable[[RemoteFile, Path], None]) -> None:
        while True:
            blob = self._cache.find(keys_of(self._store, file))
            if blob is not None:
                self._count(file.size, fetched=False)
            else:
                blob = self._fetch(file)
            try:
                place(file, blob)
            except FileNotFoundError:
                if blob.exists():
                    raise
                continue  # Another process dropped it to make room, between these two lines.
            return

    def _fetch(self, file: RemoteFile) -> Path:
        keys = keys_of(self._store, file)
        try:
            with self._cache.partial(keys[-1], self._stop) as partial:
                blob = self._cache.find(keys)
                if blob is not None:  # Another one got it while we waited.
                    self._count(file.size, fetched=False)
                    return blob
                return self._complete(file, partial, keys)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UnavailableError(
                    f"there is no space left for '{file.path}' ({_amount(file.size)}) in the cache "
                    f"'{self._cache.directory}'; free some, or set --cloud-cache-directory"
                ) from error
            raise

    def _complete(self, file: RemoteFile, partial: BinaryIO, keys: list[str]) -> Path:
        partial.seek(0)
        sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        have = 0
        chunk: bytes
        while have < file.size and (chunk := partial.read(min(1 << 20, file.size - have))):
            sha256.update(chunk)
            md5.update(chunk)
            have += len(chunk)
        partial.truncate(have)
        has_gone_on = bool(have and file.md5)
        if have:
            logger.info("the download of '%s' goes on at %s", file.path, _amount(have))
            self._count(have, fetched=False)
        for chunk in self._rest(file, have):
            partial.write(chunk)
            partial.flush()
            sha256.update(chunk)
            md5.update(chunk)
            have += len(chunk)
            self._count(len(chunk))
        if md5.hexdigest() != file.md5:
            if has_gone_on:
                # What was there may be spoilt; from the start that cannot be.
                self._count(-have, fetched=False)
                partial.truncate(0)
                return self._complete(file, partial, keys)
            self._check_unchanged(file, partial)
            # What looked like an MD5 is none (S3 with KMS), so nothing may be found by it.
            keys = [key for key in keys if not key.startswith("md5:")]
        return self._cache.keep(partial, sha256.hexdigest(), keys)

    def _rest(self, file: RemoteFile, start: int) -> Iterator[bytes]:
        """What lies behind `start`; the next ranges are on their way while these are used."""
        step = _RANGE_BYTES * _RANGES_AT_ONCE
        starts = range(start, file.size, step)
        with ThreadPoolExecutor(1, "download-ahead") as ahead:
            coming = [ahead.submit(self._next, file, begin) for begin in starts[:1]]
            for begin in starts:
                chunks = coming.pop().result()
                if begin + step < file.size:
                    coming.append(ahead.submit(self._next, file, begin + step))
                yield from chunks

    def _next(self, file: RemoteFile, start: int) -> list[bytes]:
        if self._stop.is_set():
            raise given_up()
        ends = range(start, file.size, _RANGE_BYTES)[:_RANGES_AT_ONCE]
        ranges = [(begin, min(begin + _RANGE_BYTES, file.size)) for begin in ends]
        try:
            chunks = self._store.read(file, ranges, self._stop)
        except FileNotFoundError:
            raise self._changed(file) from None
        for (begin, end), chunk in zip(ranges, chunks, strict=True):
            if len(chunk) != end - begin:
                raise self._changed(file)
        return chunks

    def _check_unchanged(self, file: RemoteFile, partial: BinaryIO) -> None:
        now = self._store.look(file)
        is_same = now is not None and (now.size, now.etag) == (file.size, file.etag)
        if not is_same or (file.md5 and self._store.url.scheme != "s3"):
            partial.truncate(0)
            raise self._changed(file)

    def _changed(self, file: RemoteFile) -> UnavailableError:
        return UnavailableError(
            f"'{file.path}' of {self._url} changed while it was downloaded; load the model again "
            "when its upload has ended"
        )

    def _count(self, count: int, *, fetched: bool = True) -> None:
        with self._lock:
            self._done += count
            self._fetched += count if fetched else 0
        self._tell()

    def _tell(self, *, force: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if not force and now - self._told_at < _TELL_EVERY_S:
                return
            self._told_at = now
            progress = Progress(self._url, self._total, self._done, self._fetched)
            if now - self._logged_at >= _LOG_EVERY_S:
                self._logged_at = now
                logger.info("%s", progress)
        self._on_progress(progress)


def keys_of(store: ObjectStore, file: RemoteFile) -> list[str]:
    """What leads to the content of an object in the cache; the last one is its own alone."""
    endpoint = store.url.endpoint or store.url.account
    own = f"{store.url.scheme}:{endpoint}:{file.key}:{file.etag}:{file.size}:{file.modified_ns}"
    return [f"md5:{file.md5}:{file.size}", own] if file.md5 else [own]


def _amount(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
