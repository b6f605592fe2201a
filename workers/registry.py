"""A worker's writing side of Redis: heartbeat, streams, results of operations.

One object a process; `redis-py` clients are safe to share between threads. Every method raises
redis.RedisError when Redis is away; callers decide what that means to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from workers import keys
from workers.connection import connect
from workers.engine_messages import EngineProgress
from workers.messages import Event, OperationResult, Reply, Sample, WorkerInfo

_encoder = msgspec.json.Encoder()


class Registry:
    def __init__(self, redis_url: str) -> None:
        self._redis = connect(redis_url)

    def known(self, worker_id: str) -> WorkerInfo | None:
        """Who answers to this id now."""
        raw: Any = self._redis.get(keys.worker(worker_id))
        return None if raw is None else msgspec.json.decode(raw, type=WorkerInfo)

    def publish(
        self,
        info: WorkerInfo | None = None,
        samples: Iterable[Sample] = (),
        events: Iterable[Event] = (),
        results: Iterable[OperationResult] = (),
        engines: Iterable[EngineProgress] = (),
    ) -> None:
        """All that is new since the last time, in one round trip; results before their events."""
        pipe = self._redis.pipeline(transaction=False)
        for result in results:
            pipe.set(
                keys.operation(result.operation_id),
                _encoder.encode(result),
                ex=keys.OPERATION_LIFETIME_S,
            )
        for progress in engines:
            pipe.set(
                keys.engine(progress.build_id),
                _encoder.encode(progress),
                ex=keys.OPERATION_LIFETIME_S,
            )
        for event in events:
            pipe.xadd(
                keys.EVENTS,
                {keys.DATA: _encoder.encode(event)},
                maxlen=keys.EVENTS_LENGTH,
                approximate=True,
            )
        for sample in samples:
            pipe.xadd(
                keys.TELEMETRY,
                {keys.DATA: _compact(sample)},
                maxlen=keys.TELEMETRY_LENGTH,
                approximate=True,
            )
        if info is not None:
            raw = _encoder.encode(info)
            pipe.set(keys.worker(info.worker_id), raw, ex=keys.LIFETIME_S)
            pipe.hset(keys.WORKERS, info.worker_id, raw)
        pipe.execute()

    def leave(self, info: WorkerInfo) -> None:
        """The worker ends in order: readers see it stopped at once, not lost after its lifetime."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(keys.WORKERS, info.worker_id, _encoder.encode(info))
        pipe.delete(keys.worker(info.worker_id))
        pipe.execute()

    def reply(self, reply_id: str, reply: Reply) -> None:
        pipe = self._redis.pipeline()
        pipe.rpush(keys.reply(reply_id), _encoder.encode(reply))
        pipe.expire(keys.reply(reply_id), keys.REPLY_LIFETIME_S)
        pipe.execute()

    def close(self) -> None:
        self._redis.close()


def _compact(sample: Sample) -> bytes:
    """Without the figures that are 0 or empty: a reader takes them for granted, and most models of
    a worker are idle most of the time."""
    plain = msgspec.to_builtins(sample)
    plain["models"] = [
        {key: value for key, value in model.items() if value} for model in plain["models"]
    ]
    return _encoder.encode(plain)
