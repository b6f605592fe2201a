"""The thread that tells Redis how a worker is: heartbeat, one sample a second, events, results.

Whoever has news leaves it in the outbox, from any thread and without waiting. Redis away: the news
stay there (the newest of them), the fault is logged once, and every tick tries again; serving goes
on meanwhile. A heartbeat is only sent while the server's event loop answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import redis

from workers import keys
from workers.engine_messages import EngineProgress
from workers.messages import Event, OperationResult, Sample, WorkerInfo
from workers.registry import Registry

logger = logging.getLogger(__name__)

News = Event | OperationResult | EngineProgress

_OUTBOX_LENGTH = 1000
_TICK_S = 1.0


class Publisher:
    def __init__(
        self,
        registry: Registry,
        describe: Callable[[], WorkerInfo],
        sample: Callable[[float], Sample],
        *,
        where: str,
    ) -> None:
        """`where` names the Redis server in the log, without its password."""
        self._registry = registry
        self._describe = describe
        self._sample = sample
        self._where = where
        self._outbox: deque[News] = deque(maxlen=_OUTBOX_LENGTH)
        self._wake = threading.Event()
        self._is_stopping = False
        self._trouble = ""
        self._next_beat_s = 0.0
        self._sampled_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def __repr__(self) -> str:
        return f"<Publisher outbox={len(self._outbox)} trouble={self._trouble!r}>"

    def start(self) -> None:
        self._thread.start()

    def tell(self, *news: News) -> None:
        """Any thread; never waits. A heartbeat goes along."""
        self._outbox.extend(news)
        self._next_beat_s = 0.0
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Send what is left, if Redis takes it, and end."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        next_sample_s = time.monotonic() + _TICK_S
        while not self._is_stopping:
            self._wake.wait(max(0.0, next_sample_s - time.monotonic()))
            self._wake.clear()
            now_s = time.monotonic()
            is_due = now_s >= next_sample_s
            if is_due:
                next_sample_s = max(next_sample_s + _TICK_S, now_s)
            self._tick(is_due)
        if self._outbox:
            self._tick(is_due=False)

    def _tick(self, is_due: bool) -> None:
        try:
            self._publish(is_due)
        except redis.RedisError as error:
            self._note(f"Redis at {self._where} cannot be reached: {error}")
        except TimeoutError:
            self._note("the serving event loop does not answer; no heartbeat is sent")
        except Exception:
            # The thread must outlive whatever one tick runs into.
            logger.exception("a tick of the telemetry failed")
        else:
            self._note("")

    def _publish(self, is_due: bool) -> None:
        samples: list[Sample] = []
        info: WorkerInfo | None = None
        silence: TimeoutError | None = None
        try:
            samples = self._take_sample() if is_due else []
            info = self._take_beat()
        except TimeoutError as error:
            silence = error  # What has happened is told all the same.
        news = list(self._outbox)
        try:
            self._registry.publish(
                info,
                samples,
                [item for item in news if isinstance(item, Event)],
                [item for item in news if isinstance(item, OperationResult)],
                [item for item in news if isinstance(item, EngineProgress)],
            )
        except redis.RedisError:
            self._next_beat_s = 0.0
            raise
        for _ in news:
            # Only this thread takes out; a full outbox may have dropped some of them already.
            if self._outbox and self._outbox[0] in news:
                self._outbox.popleft()
        if silence is not None:
            raise silence

    def _take_sample(self) -> list[Sample]:
        now_s = time.monotonic()
        sample = self._sample(now_s - self._sampled_s)
        self._sampled_s = now_s
        return [sample]

    def _take_beat(self) -> WorkerInfo | None:
        now_s = time.monotonic()
        if now_s < self._next_beat_s:
            return None
        self._next_beat_s = now_s + keys.HEARTBEAT_S
        return self._describe()

    def _note(self, trouble: str) -> None:
        """Log a fault when it begins and when it ends, not every second in between."""
        if trouble and not self._trouble:
            logger.error("%s; serving goes on, trying again every %g s", trouble, _TICK_S)
        elif self._trouble and not trouble:
            logger.info("Redis at %s answers again", self._where)
        self._trouble = trouble
