"""A response cache over a store that may be slow, hang or be gone: none of it costs a request.

The loop thread owns everything here but `_work`, which runs in threads of the cache: they call the
store and hand results back in one `call_soon_threadsafe` for as many as there are. A lookup that
takes too long is a miss; after several failures in a row the store is left alone for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from serving.breaker import CircuitBreaker
from serving.cache import codec
from serving.cache.base import CachedAnswer, Found, ResponseCache
from serving.cache.store import CacheStore
from serving.clock import Clock, TimerHandle

logger = logging.getLogger(__name__)

_LOOKUPS_LIMIT = 256
_AT_ONCE = 64
"""Calls that one thread takes together."""
_INSERTIONS_LIMIT = 64 << 20
"""Bytes that may wait to be stored; what comes beyond is not kept."""


@dataclass(slots=True, eq=False)
class _Job:
    """One call of the store. `answer` is given to insert, or found."""

    key: bytes
    found: Found | None = None
    """None: an insertion."""
    answer: CachedAnswer | None = None
    error: str = ""
    start_ns: int = field(default_factory=time.perf_counter_ns)
    timer: TimerHandle | None = None
    is_over: bool = False
    """Its time was over before its result came."""


class StoreCache(ResponseCache):
    is_shared = True

    def __init__(
        self, name: str, store: CacheStore, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        super().__init__()
        self._name = name
        self._store = store
        self._loop = loop
        self._clock = clock
        self._breaker = CircuitBreaker(clock.now_ns)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._results: deque[_Job] = deque()
        self._is_drain_due = False
        self._open_lookups = 0
        self._waiting_bytes = 0
        self._cannot_insert = False
        self._threads = [
            threading.Thread(target=self._work, name=f"cache-{name}-{number}", daemon=True)
            for number in range(store.thread_count)
        ]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<StoreCache {self._name} lookups={self._open_lookups} {self._breaker!r}>"

    def look_up(self, key: bytes, found: Found) -> None:
        if self._open_lookups >= _LOOKUPS_LIMIT or not self._breaker.allows():
            self.counters.misses += 1
            found(None)
            return
        job = _Job(key, found)
        self._open_lookups += 1
        deadline_ns = self._clock.now_ns() + int(self._store.timeout_s * 1e9)
        job.timer = self._clock.call_at(deadline_ns, lambda: self._on_late(job))
        self._jobs.put(job)

    def insert(self, key: bytes, answer: CachedAnswer) -> None:
        size = answer.byte_size
        if self._waiting_bytes + size > _INSERTIONS_LIMIT or self._breaker.is_open:
            return
        self._waiting_bytes += size
        self._jobs.put(_Job(key, answer=answer))

    def close(self) -> None:
        """Threads that hang in the store are daemons and left behind."""
        for _ in self._threads:
            self._jobs.put(None)

    # In the cache's own threads

    def _work(self) -> None:
        is_closing = False
        while not is_closing and (job := self._jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < _AT_ONCE and not self._jobs.empty():
                with contextlib.suppress(Empty):
                    another = self._jobs.get_nowait()
                    if another is None:
                        is_closing = True
                        break
                    jobs.append(another)
            # Somebody waits for each lookup, and nobody for an insertion.
            self._look_up_all([job for job in jobs if job.found is not None])
            for job in jobs:
                if job.found is None:
                    self._insert(job)
        if threading.current_thread() is self._threads[0]:
            self._close_store()

    def _look_up_all(self, jobs: list[_Job]) -> None:
        wanted = [job for job in jobs if not job.is_over]
        try:
            values = self._store.get_many([job.key for job in wanted]) if wanted else []
            for job, value in zip(wanted, values, strict=True):
                _put_answer(job, value)
        except Exception as error:
            # Whatever a store raises, it has only failed to help.
            for job in wanted:
                job.error = _told(error)
        self._hand_back(jobs)

    def _insert(self, job: _Job) -> None:
        assert job.answer is not None
        try:
            self._store.put(job.key, codec.encode(job.answer))
        except Exception as error:
            job.error = _told(error)
        self._hand_back([job])

    def _hand_back(self, jobs: list[_Job]) -> None:
        self._results.extend(jobs)
        if not self._is_drain_due:
            self._is_drain_due = True
            # The loop may have ended, and with it all who wait.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _close_store(self) -> None:
        try:
            self._store.close()
        except Exception:
            logger.warning("closing the response cache '%s' failed", self._name, exc_info=True)

    # On the loop

    def _drain(self) -> None:
        self._is_drain_due = False
        while self._results:
            job = self._results.popleft()
            self._note(job)
            if job.found is not None:
                self._open_lookups -= 1
                if not job.is_over:
                    self._end_lookup(job)
            elif job.answer is not None:
                self._waiting_bytes -= job.answer.byte_size
                self.counters.insertion_ns += time.perf_counter_ns() - job.start_ns

    def _note(self, job: _Job) -> None:
        if job.is_over:
            return  # Counted when its time was over.
        if job.found is None:
            self._note_insertion(job.error)
        if job.error:
            self._on_failure(job.error)
        elif job.found is not None:
            self._on_success()

    def _note_insertion(self, error: str) -> None:
        """Told once, until insertions succeed again (SCH-123)."""
        if error and not self._cannot_insert:
            logger.warning("the response cache '%s' does not keep answers: %s", self._name, error)
        self._cannot_insert = bool(error)

    def _end_lookup(self, job: _Job) -> None:
        assert job.found is not None
        if job.timer is not None:
            job.timer.cancel()
        counters = self.counters
        counters.lookup_ns += time.perf_counter_ns() - job.start_ns
        if job.answer is None:
            counters.misses += 1
        else:
            counters.hits += 1
        job.found(job.answer)

    def _on_late(self, job: _Job) -> None:
        job.is_over = True
        self._on_failure(f"no answer within {self._store.timeout_s:g} s")
        self.counters.misses += 1
        assert job.found is not None
        job.found(None)

    def _on_success(self) -> None:
        was_open = self._breaker.is_open
        self._breaker.succeeded()
        if was_open:
            self.counters.is_open = True
            logger.info("the response cache '%s' answers again", self._name)

    def _on_failure(self, error: str) -> None:
        self.counters.failures += 1
        was_open = self._breaker.is_open
        self._breaker.failed()
        if self._breaker.is_open and not was_open:
            self.counters.is_open = False
            logger.warning(
                "the response cache '%s' fails and is left alone for a while, requests go to the "
                "models: %s",
                self._name,
                error,
            )


def _put_answer(job: _Job, value: bytes | None) -> None:
    """What cannot be read costs this one lookup, not those beside it."""
    try:
        job.answer = None if value is None else codec.decode(value)
    except ValueError as error:
        job.error = _told(error)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
