"""The Celery application of the console's background half, queue `console`.

Started by `celery -A console worker -B -Q console --pool threads`. Apps register tasks in their
`tasks.py` with `@shared_task` and their rhythm in `BEAT` there.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import django
from celery import Celery
from celery.signals import beat_embedded_init
from django.apps import apps
from django.conf import settings

from serving.child_program import die_with_parent
from workers.settings import broker_url

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def collect_beat() -> dict[str, Any]:
    """`BEAT` of every app that has one: name -> {"task", "schedule"}."""
    schedule: dict[str, Any] = {}
    for config in apps.get_app_configs():
        if config.name.startswith("console.") and find_spec(f"{config.name}.tasks"):
            schedule |= getattr(import_module(f"{config.name}.tasks"), "BEAT", {})
    return schedule


app = Celery("console", broker=broker_url(settings.REDIS_URL))
app.conf.update(
    result_backend=None,
    task_ignore_result=True,
    task_default_queue="console",
    task_acks_late=True,
    task_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    enable_utc=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 3600,
        # A Redis that hangs must not hold a page for ever; a waiting read takes one second.
        "socket_connect_timeout": 3.0,
        "socket_timeout": 6.0,
    },
    beat_schedule_filename=str(settings.CONCH_DATA_DIR / "beat-schedule"),
)
# Threads of the web process that send tasks find this application, not an unconfigured one.
app.set_default()
app.autodiscover_tasks()
if not apps.models_ready:
    # Only the celery command comes here before Django is set up; manage.py and the web server send
    # tasks and need no rhythm.
    django.setup()
    app.conf.beat_schedule = collect_beat()


def end_with_the_worker(**kwargs: Any) -> None:
    """Beat is a child process of the control worker; left alone it would go on beating beside the
    next one's. SIGTERM, so that it closes its schedule file.
    """
    die_with_parent(os.getppid(), signal.SIGTERM)


beat_embedded_init.connect(end_with_the_worker)
