"""The narrow door to the workers: orders by Celery task, everything else read from Redis.

Starts no core and needs none. One client may be shared by the threads of a process; `follow` brings
its own connection for the event loop that it runs on.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
import redis
from celery import Celery
from kombu.exceptions import OperationalError

from serving.breaker import CircuitBreaker
from workers import keys
from workers.connection import TIMEOUT_S, connect, connect_async
from workers.engine_messages import EngineOrder, EngineProgress
from workers.messages import (
    Event,
    ModelDescription,
    ModelVersionState,
    OperationResult,
    Reply,
    Sample,
    WorkerInfo,
)
from workers.settings import broker_url, queue_of
from workers.settings import redis_url as redis_url_of_environment

logger = logging.getLogger(__name__)
T = TypeVar("T")

ORDER_EXPIRES_S = 900
"""An order that could not start by then is dropped and reported as failed."""

_BLOCK_MS = 5000
_PAUSE_S = 2.0
"""For so long nobody waits for a Redis that hangs; then one does, to see whether it still does."""
_STREAMS: dict[str, type[Sample] | type[Event]] = {
    keys.TELEMETRY: Sample,
    keys.EVENTS: Event,
}


class WorkerError(Exception):
    """A worker or Redis does not answer, or the worker answered with an error."""


class WorkerClient:
    def __init__(self, redis_url: str | None = None) -> None:
        self._url = redis_url or redis_url_of_environment()
        self._redis: Any = connect(self._url)
        self._hanging = CircuitBreaker(
            time.monotonic_ns, limit=1, first_pause_s=_PAUSE_S, longest_pause_s=_PAUSE_S
        )
        self._celery = Celery("conch-client", broker=broker_url(self._url), set_as_current=False)
        self._celery.conf.update(
            task_ignore_result=True,
            task_serializer="json",
            broker_transport_options={
                "socket_connect_timeout": TIMEOUT_S,
                "socket_timeout": TIMEOUT_S,
            },
        )

    @property
    def is_hanging(self) -> bool:
        """Redis did not answer in time a moment ago."""
        return self._hanging.is_open

    # The registry

    def workers(self) -> list[WorkerInfo]:
        """Every worker ever seen, by id; "lost" where the heartbeat has run out unannounced."""
        known = self._ask(lambda: self._redis.hgetall(keys.WORKERS))
        ids = sorted(raw.decode() for raw in known)
        if not ids:
            return []
        alive = self._ask(lambda: self._redis.mget([keys.worker(item) for item in ids]))
        found = [
            _worker(fresh, known[item.encode()]) for item, fresh in zip(ids, alive, strict=True)
        ]
        return [info for info in found if info is not None]

    def worker(self, worker_id: str) -> WorkerInfo | None:
        def read() -> tuple[bytes | None, bytes | None]:
            return (
                self._redis.get(keys.worker(worker_id)),
                self._redis.hget(keys.WORKERS, worker_id),
            )

        return _worker(*self._ask(read))

    def forget(self, worker_id: str) -> None:
        """Drop a lost worker from the list. One that lives comes back with its next heartbeat."""
        self._ask(lambda: self._redis.hdel(keys.WORKERS, worker_id))

    # Orders

    def load_model(
        self,
        worker_id: str,
        model: str,
        *,
        operation_id: str,
        versions: list[int] | None = None,
        config: str | None = None,
    ) -> None:
        """Returns at once; see `operation_result`. Raises WorkerError for a worker that is away."""
        self._order(
            worker_id,
            "workers.load_model",
            ORDER_EXPIRES_S,
            model=model,
            operation_id=operation_id,
            versions=versions,
            config=config,
        )

    def unload_model(
        self,
        worker_id: str,
        model: str,
        *,
        operation_id: str,
        version: int | None = None,
        unload_dependents: bool = False,
    ) -> None:
        """Returns at once; see `operation_result`. Raises WorkerError for a worker that is away."""
        self._order(
            worker_id,
            "workers.unload_model",
            ORDER_EXPIRES_S,
            model=model,
            operation_id=operation_id,
            version=version,
            unload_dependents=unload_dependents,
        )

    def operation_result(self, operation_id: str) -> OperationResult | None:
        """None while the operation has not ended."""
        raw = self._ask(lambda: self._redis.get(keys.operation(operation_id)))
        return None if raw is None else msgspec.json.decode(raw, type=OperationResult)

    # Engine builds

    def build_engine(self, worker_id: str, order: EngineOrder) -> None:
        """Returns at once; see `engine_progress`. Raises WorkerError for a worker that is away."""
        self._order(
            worker_id, "workers.build_engine", ORDER_EXPIRES_S, order=msgspec.to_builtins(order)
        )

    def cancel_engine(self, worker_id: str, build_id: str) -> None:
        """Returns at once; the progress tells when it has happened. Raises WorkerError."""
        self._order(worker_id, "workers.cancel_engine", ORDER_EXPIRES_S, build_id=build_id)

    def engine_progress(self, build_id: str) -> EngineProgress | None:
        """None while the worker has said nothing of it."""
        raw = self._ask(lambda: self._redis.get(keys.engine(build_id)))
        return None if raw is None else msgspec.json.decode(raw, type=EngineProgress)

    # Questions

    def describe_model(
        self, worker_id: str, model: str, *, timeout_s: float = 5.0
    ) -> ModelDescription:
        reply = self._question(worker_id, "workers.describe_model", timeout_s, model=model)
        if reply.description is None:
            raise WorkerError(f"worker '{worker_id}' gave no description of model '{model}'")
        return reply.description

    def index_models(self, worker_id: str, *, timeout_s: float = 5.0) -> list[ModelVersionState]:
        """The repository index as it is now, not as of the last heartbeat."""
        return self._question(worker_id, "workers.index_models", timeout_s).models or []

    # The streams

    def samples(self, *, since: float, limit: int = 4000) -> list[Sample]:
        """The newest `limit` samples from `since` (seconds since the epoch) on, oldest first."""
        return self._range(keys.TELEMETRY, Sample, since, limit)

    def events(self, *, since: float, limit: int = 500) -> list[Event]:
        """The newest `limit` events from `since` (seconds since the epoch) on, oldest first."""
        return self._range(keys.EVENTS, Event, since, limit)

    async def follow(self, last_id: str = "$") -> AsyncIterator[tuple[str, Sample | Event]]:
        """New entries of both streams as they come, from `last_id` on; "$": from now on.

        The ids given are positions in both streams, opaque to callers; any of them continues
        without a gap. Never ends by itself. Raises WorkerError when Redis goes away.
        """
        connection = connect_async(self._url, block_s=_BLOCK_MS / 1000)
        try:
            positions = dict(zip(_STREAMS, _split(last_id), strict=True))
            if last_id == "$":
                positions = {key: await _last_id(connection, key) for key in _STREAMS}
            while True:
                answer = await connection.xread(positions, count=500, block=_BLOCK_MS)
                for entry_id, key, fields in _in_order(answer):
                    positions[key] = entry_id
                    message = _decode(fields, _STREAMS[key])
                    if message is not None:
                        yield "/".join(positions.values()), message
        except (redis.RedisError, OSError) as error:
            raise WorkerError(_unreachable(error)) from error
        finally:
            await connection.aclose()

    # Tools

    def _order(self, worker_id: str, task: str, expires_s: float, **arguments: Any) -> None:
        self._check_alive(worker_id)
        try:
            self._celery.send_task(
                task, kwargs=arguments, queue=queue_of(worker_id), expires=expires_s
            )
        except (OperationalError, redis.RedisError, OSError) as error:
            raise WorkerError(_unreachable(error)) from error

    def _question(self, worker_id: str, task: str, timeout_s: float, **arguments: Any) -> Reply:
        reply_id = uuid.uuid4().hex
        self._order(worker_id, task, timeout_s, reply_id=reply_id, **arguments)
        # Asked in short turns: one blocking read must stay below the connection's own timeout.
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            turn_s = min(left_s, TIMEOUT_S / 2)
            answer = self._take(keys.reply(reply_id), turn_s)
            if answer is not None:
                reply = msgspec.json.decode(answer[1], type=Reply)
                if reply.error:
                    raise WorkerError(reply.error)
                return reply
        raise WorkerError(f"worker '{worker_id}' did not answer within {timeout_s:g} s")

    def _take(self, key: str, wait_s: float) -> Any:
        return self._ask(lambda: self._redis.blpop(key, wait_s))

    def _check_alive(self, worker_id: str) -> None:
        info = self.worker(worker_id)
        if info is None:
            raise WorkerError(f"there is no worker '{worker_id}'")
        if info.is_gone:
            seen = time.strftime("%H:%M:%S UTC", time.gmtime(info.last_seen))
            raise WorkerError(
                f"worker '{worker_id}' is {info.state}: it was last heard of at {seen}"
            )

    def _range(self, key: str, kind: type[T], since: float, limit: int) -> list[T]:
        first = f"{max(0, int(since * 1000))}"
        entries = self._ask(lambda: self._redis.xrevrange(key, "+", first, count=limit))
        decoded = (_decode(fields, kind) for _, fields in reversed(entries))
        return [item for item in decoded if item is not None]

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Raises WorkerError; at once while Redis hangs, but for a try now and then."""
        if not self._hanging.allows():
            raise WorkerError("Redis hangs: it did not answer a moment ago and is asked again soon")
        try:
            answer = question()
        except redis.TimeoutError as error:
            self._hanging.failed()
            raise WorkerError(_unreachable(error)) from error
        except redis.RedisError as error:
            self._hanging.succeeded()  # It is away or refuses, which it says at once.
            raise WorkerError(_unreachable(error)) from error
        except BaseException:
            self._hanging.succeeded()
            raise
        self._hanging.succeeded()
        return answer


def _worker(fresh: bytes | None, last: bytes | None) -> WorkerInfo | None:
    if fresh is not None:
        return msgspec.json.decode(fresh, type=WorkerInfo)
    if last is None:
        return None
    info = msgspec.json.decode(last, type=WorkerInfo)
    return info if info.state == "stopped" else msgspec.structs.replace(info, state="lost")


def _decode(fields: dict[bytes, bytes], kind: type[T]) -> T | None:
    """None for an entry of another release that cannot be read."""
    try:
        return msgspec.json.decode(fields[keys.DATA.encode()], type=kind)
    except (KeyError, msgspec.MsgspecError) as error:
        logger.warning("an unreadable %s was skipped: %s", kind.__name__, error)
        return None


def _in_order(answer: Any) -> list[tuple[str, str, dict[bytes, bytes]]]:
    """The entries of an XREAD as (id, stream, fields), oldest first over all streams."""
    streams = answer.items() if isinstance(answer, dict) else answer or []
    entries = [
        (entry_id.decode(), key.decode(), fields)
        for key, items in streams
        for entry_id, fields in (items[0] if items and isinstance(items[0], list) else items)
    ]
    return sorted(entries, key=lambda entry: tuple(map(int, entry[0].split("-"))))


def _split(position: str) -> list[str]:
    """An id of `follow`, or one plain id for both streams. Two streams may use one id twice, so a
    single id cannot say how far a reader got in each."""
    ids = position.split("/")
    return ids if len(ids) == len(_STREAMS) else [ids[0]] * len(_STREAMS)


async def _last_id(connection: Any, key: str) -> str:
    newest = await connection.xrevrange(key, "+", "-", count=1)
    return newest[0][0].decode() if newest else "0-0"


def _unreachable(error: BaseException) -> str:
    return f"Redis cannot be reached: {error}"
