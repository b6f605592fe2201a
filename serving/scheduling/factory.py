"""Which scheduler a model gets: the one that its config chooses. Loop thread, once a load."""

from __future__ import annotations

import os
from collections.abc import Callable

from serving.config.decode import ModelSpec, SchedulerKind
from serving.instance.base import Batch
from serving.instance.pool import InstancePool
from serving.scheduling.base import Scheduler
from serving.scheduling.default import DefaultScheduler
from serving.scheduling.dynamic_batcher import DynamicBatcher
from serving.services import ModelServices


def make_scheduler(
    spec: ModelSpec,
    pool: InstancePool,
    services: ModelServices,
    on_executed: Callable[[Batch], None],
) -> Scheduler:
    if spec.scheduler is SchedulerKind.DYNAMIC:
        return DynamicBatcher(
            spec,
            pool,
            services.clock,
            on_executed=on_executed,
            hold_until=hold_until("TRITONSERVER_DELAY_SCHEDULER"),
        )
    return DefaultScheduler(spec.name, pool, services.clock, on_executed=on_executed)


def hold_until(variable: str) -> int:
    """Triton's test hooks: a scheduler holds its first batch until that many requests wait."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0
