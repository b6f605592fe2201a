"""The serving core inside a Celery worker, and what tasks may ask of it.

Owns the ServerThread, the publisher and the registry of this process. Tasks enter from Celery's
pool threads; the server itself is touched on its own loop only. How an operation ends is always a
result, never an exception: a model that does not load is no fault of the task.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

import redis

from serving import __version__
from serving.config import json_form
from serving.errors import ServingError, UnavailableError
from serving.repository.states import IndexEntry
from serving.server_thread import ServerThread
from workers.engine_builder import EngineBuilds
from workers.messages import (
    Event,
    ModelDescription,
    ModelVersionState,
    OperationResult,
    Reply,
    Sample,
    WorkerInfo,
)
from workers.publisher import Publisher
from workers.registry import Registry
from workers.settings import WorkerSettings
from workers.telemetry import ModelSampler, ProcessSampler, backend_states, device_samples

logger = logging.getLogger(__name__)

_LOOP_ANSWERS_WITHIN_S = 5.0


class WorkerHost:
    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._registry = Registry(settings.redis_url)
        self._state = "starting"
        self._started_at = time.time()
        self._models = ModelSampler()
        self._processes = ProcessSampler()
        self._thread = ServerThread(settings.server, settings.frontends)
        self._thread.server.add_state_listener(self._on_state)
        self._publisher = Publisher(
            self._registry, self.info, self._sample, where=without_password(settings.redis_url)
        )
        self.engines = EngineBuilds(
            settings.worker_id, settings.server.model_repositories, self._publisher.tell
        )

    def __repr__(self) -> str:
        return f"<WorkerHost {self._settings.worker_id} {self._state} {self._thread!r}>"

    # Life

    def start(self) -> None:
        """Blocks until the ports are open. Raises OSError or ServingError, nothing runs then."""
        self._warn_of_a_double()
        self._publisher.start()
        try:
            self._thread.start()
        except BaseException:
            self._publisher.stop()
            raise
        self._state = "ready"
        self._publisher.tell(self._event("worker_started"))
        # What is alive now stays alive: spare the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        ports = self._thread.ports
        logger.info(
            "worker '%s' serves HTTP on %d, gRPC on %d, metrics on %d",
            self._settings.worker_id,
            ports.http,
            ports.grpc,
            ports.metrics,
        )

    def stop(self) -> None:
        """Say so, finish what was accepted, close, leave the registry."""
        self._state = "draining"
        self._publisher.tell(self._event("worker_stopping"))
        self.engines.stop()
        try:
            self._thread.stop()
        except TimeoutError as error:
            logger.warning("%s; it is abandoned", error)
        self._publisher.stop()
        self._state = "stopped"
        try:
            self._registry.leave(self.info())
        except (redis.RedisError, TimeoutError) as error:
            logger.warning("could not sign off from Redis: %s", error)
        self._registry.close()

    def info(self) -> WorkerInfo:
        """Raises TimeoutError when the server's loop does not answer."""
        self._check_thread()
        settings, ports, front = self._settings, self._thread.ports, self._settings.frontends
        http_host = settings.reachable(front.http_address)
        grpc_host = settings.reachable(front.grpc_address)
        metrics_host = settings.reachable(front.metrics_address)
        return WorkerInfo(
            worker_id=settings.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            state=self._state,
            started_at=self._started_at,
            last_seen=time.time(),
            http_url=f"http://{_authority(http_host, ports.http)}",
            grpc_url=_authority(grpc_host, ports.grpc),
            metrics_url=f"http://{_authority(metrics_host, ports.metrics)}/metrics",
            repositories=[str(root) for root in settings.server.model_repositories],
            models=self.models(),
            devices=device_samples(),
            backends=backend_states(self._thread.server.backends),
        )

    def models(self) -> list[ModelVersionState]:
        """The repository index; empty while there is no server."""
        try:
            index = self._thread.invoke(
                self._thread.server.repository_index, _LOOP_ANSWERS_WITHIN_S
            )
        except (UnavailableError, CancelledError):
            return []
        return [_row(entry) for entry in index]

    # What tasks ask for

    def load(
        self,
        model: str,
        operation_id: str,
        *,
        versions: list[int] | None = None,
        config: str | None = None,
    ) -> None:
        """Starts the load; how it ends is told by the publisher."""
        self._operate(
            "load",
            model,
            operation_id,
            self._thread.server.load_model(model, versions=versions, config_override=config),
        )

    def unload(
        self,
        model: str,
        operation_id: str,
        *,
        version: int | None = None,
        unload_dependents: bool = False,
    ) -> None:
        """Starts the unload; how it ends is told by the publisher."""
        self._operate(
            "unload",
            model,
            operation_id,
            self._thread.server.unload_model(
                model, version=version, unload_dependents=unload_dependents
            ),
        )

    def fail(self, action: str, model: str, operation_id: str, error: str) -> None:
        """An operation that never ran: tell whoever waits for it."""
        now = time.time()
        self._finish(
            OperationResult(
                operation_id, self._settings.worker_id, action, model, False, error, now, now
            )
        )

    def describe(self, model: str, reply_id: str) -> None:
        server = self._thread.server

        def read() -> ModelDescription:
            return ModelDescription(
                metadata=server.model_metadata(model),
                config=json_form.to_json(server.model_config(model)),
                statistics={"model_stats": server.model_statistics(model)},
            )

        try:
            reply = Reply(description=self._thread.invoke(read, _LOOP_ANSWERS_WITHIN_S))
        except ServingError as error:
            reply = Reply(error=error.message)
        except (TimeoutError, CancelledError):
            reply = Reply(error="the serving event loop does not answer")
        self._registry.reply(reply_id, reply)

    def index(self, reply_id: str) -> None:
        try:
            reply = Reply(models=self.models())
        except TimeoutError:
            reply = Reply(error="the serving event loop does not answer")
        self._registry.reply(reply_id, reply)

    def _operate(
        self, action: str, model: str, operation_id: str, work: Coroutine[Any, Any, None]
    ) -> None:
        """A load may take minutes: it must not hold one of Celery's few threads meanwhile."""
        started_at = time.time()

        def ended(done: Future[None]) -> None:
            error = _outcome(done, action, model)
            self._finish(
                OperationResult(
                    operation_id=operation_id,
                    worker_id=self._settings.worker_id,
                    action=action,
                    model=model,
                    is_success=not error,
                    error=error,
                    started_at=started_at,
                    finished_at=time.time(),
                    ready_versions=[
                        str(version) for version in self._thread.server.ready_versions(model)
                    ],
                )
            )

        try:
            # The callback runs on the server's loop, so it may read the server.
            self._thread.submit(work).add_done_callback(ended)
        except UnavailableError as error:
            self.fail(action, model, operation_id, error.message)

    def _finish(self, result: OperationResult) -> None:
        self._publisher.tell(
            result,
            Event(
                worker_id=result.worker_id,
                at=result.finished_at,
                kind="operation_finished",
                model=result.model,
                state="succeeded" if result.is_success else "failed",
                reason=result.error,
                operation_id=result.operation_id,
            ),
        )

    # What the publisher and the server tell

    def _sample(self, interval_s: float) -> Sample:
        server = self._thread.server
        try:
            models = self._thread.invoke(
                lambda: self._models.sample(server.metrics_models()), _LOOP_ANSWERS_WITHIN_S
            )
        except (UnavailableError, CancelledError):
            models = []
        cpu_percent, memory_bytes = self._processes.sample(interval_s)
        return Sample(
            worker_id=self._settings.worker_id,
            at=time.time(),
            interval_s=interval_s,
            cpu_percent=cpu_percent,
            memory_bytes=memory_bytes,
            models=models,
            devices=device_samples(),
        )

    def _on_state(self, entry: IndexEntry) -> None:
        """Loop thread."""
        row = _row(entry)
        self._publisher.tell(
            Event(
                worker_id=self._settings.worker_id,
                at=time.time(),
                kind="model_state",
                model=row.name,
                version=row.version,
                state=row.state,
                reason="; ".join(filter(None, (row.reason, entry.note))),
            )
        )

    def _event(self, kind: str) -> Event:
        return Event(self._settings.worker_id, time.time(), kind)

    def _check_thread(self) -> None:
        """A worker without its serving thread is worse than none: end it, to be started again."""
        if self._state == "ready" and not self._thread.is_alive:
            self._state = "draining"
            logger.critical("the serving thread has ended unexpectedly; this worker stops")
            os.kill(os.getpid(), signal.SIGTERM)

    def _warn_of_a_double(self) -> None:
        try:
            known = self._registry.known(self._settings.worker_id)
        except redis.RedisError:
            return  # The publisher tells about that, and goes on trying.
        if known is not None and (known.host, known.pid) != (socket.gethostname(), os.getpid()):
            logger.warning(
                "a worker '%s' was alive moments ago (process %d on %s); if it still is, give this "
                "one another CONCH_WORKER_ID",
                known.worker_id,
                known.pid,
                known.host,
            )


def _outcome(done: Future[None], action: str, model: str) -> str:
    """Why an operation failed, or an empty text."""
    if done.cancelled():
        return f"the worker stopped before the {action} had ended"
    error = done.exception()
    if error is None:
        return ""
    if isinstance(error, ServingError):
        return _without_repetition(error.message, model)
    logger.error("%s of model '%s' failed unexpectedly", action, model, exc_info=error)
    return f"unexpected {type(error).__name__}: {error}"


def _without_repetition(message: str, model: str) -> str:
    """A load's error as `version 1: why`: who reads it has the model's name beside it, and the
    words of the protocol say it three times over.
    """
    message = message.removeprefix(f"load failed for model '{model}': ")
    again = rf"failed to load '{re.escape(model)}' version \1: "
    return re.sub(rf"version (\d+) is at UNAVAILABLE state: (?:{again})?", r"version \1: ", message)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def without_password(url: str) -> str:
    return re.sub(r"//[^@/]*@", "//", url)


def _row(entry: IndexEntry) -> ModelVersionState:
    return ModelVersionState(
        name=entry.name,
        version="" if entry.version is None else str(entry.version),
        state=entry.state,
        reason=entry.reason,
        backend=entry.backend,
        instances=entry.instances,
    )
