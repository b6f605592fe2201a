"""The Celery application of a GPU worker: `celery -A workers worker --pool threads -Q worker.<id>`.

Knows no Django. Orders are acknowledged before they run: a load that kills the process must not
come back with it; the console's reconciler asks again.
"""

from __future__ import annotations

from celery import Celery

from workers import logs
from workers.bootsteps import ServingStep
from workers.settings import broker_url, load_settings

settings = load_settings()

app = Celery("workers", broker=broker_url(settings.redis_url))
app.conf.update(
    conch_settings=settings,
    result_backend=None,
    task_ignore_result=True,
    task_default_queue=settings.queue,
    task_acks_late=False,
    worker_prefetch_multiplier=1,
    task_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    enable_utc=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    imports=("workers.tasks",),
)
app.steps["worker"].add(ServingStep)
if settings.log_json:
    logs.use_json()
