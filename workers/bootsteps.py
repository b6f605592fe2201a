"""The Celery bootstep that puts the serving core into the worker process.

Runs in Celery's main thread, after the pool and before the consumer: no task arrives before the
server is up, and on shutdown the server drains while the pool still lets running tasks end.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps
from celery.exceptions import ImproperlyConfigured

from serving.errors import ServingError
from workers import hosting
from workers.host import WorkerHost
from workers.settings import WorkerSettings

logger = logging.getLogger(__name__)


class ServingStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Hosts the core for the life of the worker."""

    requires = ("celery.worker.components:Pool",)
    label = "Serving"

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._host: WorkerHost | None = None

    def start(self, parent: Any) -> None:
        settings: WorkerSettings = parent.app.conf.conch_settings
        try:
            check_worker(parent, settings)
            host = WorkerHost(settings)
            host.start()
        except (ImproperlyConfigured, ServingError, OSError) as error:
            logger.critical("worker '%s' cannot start: %s", settings.worker_id, error)
            raise SystemExit(1) from error
        self._host = host
        hosting.set_current(host)

    def stop(self, parent: Any) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.stop()
            hosting.set_current(None)

    def terminate(self, parent: Any) -> None:
        self.stop(parent)


def check_worker(parent: Any, settings: WorkerSettings) -> None:
    """Raises ImproperlyConfigured when Celery was started so that orders could not be served."""
    pool = getattr(parent.pool_cls, "__module__", "")
    if not pool.endswith(".thread"):
        raise ImproperlyConfigured(
            "this worker hosts the serving core in its own process: start it with --pool threads"
        )
    queues = list(parent.app.amqp.queues.consume_from)
    if queues != [settings.queue]:
        raise ImproperlyConfigured(
            f"worker '{settings.worker_id}' listens to {', '.join(queues) or 'no queue'}: start it "
            f"with -Q {settings.queue}, or set CONCH_WORKER_ID"
        )
