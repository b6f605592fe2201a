"""Which scheduler a model gets: the one that its config chooses. Loop thread, once a load."""

from __future__ import annotations

import os
from collections.abc import Callable

from serving.config.decode import ModelSpec, SchedulerKind
from serving.errors import UnsupportedError
from serving.instance.base import Batch
from serving.instance.pool import InstancePool
from serving.scheduling.base import Scheduler
from serving.scheduling.custom_batching import BatchStrategy
from serving.scheduling.default import DefaultScheduler
from serving.scheduling.dynamic_batcher import DynamicBatcher
from serving.scheduling.ensemble import EnsembleScheduler
from serving.scheduling.sequence.scheduler import SequenceBatcher
from serving.scheduling.sequence.state import ImplicitState
from serving.services import ModelServices


def make_scheduler(
    spec: ModelSpec,
    pool: InstancePool,
    services: ModelServices,
    on_executed: Callable[[Batch], None],
    *,
    strategy: BatchStrategy | None = None,
    states: ImplicitState | None = None,
) -> Scheduler:
    """`strategy` is the model's custom batching, for the dynamic batcher; `states` its implicit
    state, for the sequence batcher."""
    if spec.scheduler is SchedulerKind.ENSEMBLE:
        if services.calls is None:
            raise UnsupportedError(f"ensemble '{spec.name}' needs a server that has its models")
        return EnsembleScheduler(spec, services.calls, services.clock, on_executed=on_executed)
    if spec.scheduler is SchedulerKind.DYNAMIC:
        return DynamicBatcher(
            spec,
            pool,
            services.clock,
            on_executed=on_executed,
            hold_until=hold_until("TRITONSERVER_DELAY_SCHEDULER"),
            strategy=strategy,
        )
    if spec.scheduler is SchedulerKind.SEQUENCE:
        return SequenceBatcher(
            spec,
            pool,
            services.clock,
            states=states,
            on_executed=on_executed,
            hold_until=hold_until("TRITONSERVER_DELAY_SCHEDULER"),
            hold_backlog=hold_until("TRITONSERVER_BACKLOG_DELAY_SCHEDULER"),
        )
    return DefaultScheduler(spec.name, pool, services.clock, on_executed=on_executed)


def hold_until(variable: str) -> int:
    """Triton's test hooks: a scheduler holds its first batch until that many requests wait."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0
