"""The background half of monitoring: minutes every half minute, tidying every hour."""

from __future__ import annotations

from celery import shared_task

from console.monitoring import services

BEAT = {
    "monitoring-roll-up": {"task": "console.monitoring.tasks.roll_up", "schedule": 30.0},
    "monitoring-forget": {"task": "console.monitoring.tasks.forget_old", "schedule": 3600.0},
}


@shared_task(expires=60)  # type: ignore[untyped-decorator]
def roll_up() -> None:
    services.roll_up()


@shared_task(expires=3600)  # type: ignore[untyped-decorator]
def forget_old() -> None:
    services.forget_old()
