"""One second of a worker's life as a Sample: differences of counters, processes, devices.

`ModelSampler` reads the models' statistics and belongs to the server's loop thread;
`ProcessSampler` asks the operating system and belongs to the publisher's thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import psutil

from serving import devices
from serving.backends import installed
from serving.backends.registry import BackendRegistry
from serving.errors import FailureReason
from serving.model import Model
from serving.scheduling.sequence.lanes import SlotUsage
from serving.stats import LATENCY_BOUNDS_US, Duration, StatsSnapshot
from workers.messages import BackendState, DeviceSample, ModelSample

_BEYOND_US = LATENCY_BOUNDS_US[-1] * 2
"""Stands for the bound of the last bucket, which has none."""


class ModelSampler:
    def __init__(self) -> None:
        self._before: dict[tuple[str, int], tuple[weakref.ref[Model], StatsSnapshot]] = {}

    def sample(self, models: Iterable[Model]) -> list[ModelSample]:
        """What every model did since the last call. A reloaded model starts from zero."""
        samples = []
        seen: dict[tuple[str, int], tuple[weakref.ref[Model], StatsSnapshot]] = {}
        for model in models:
            key = (model.name, model.version)
            now = model.stats.snapshot()
            known = self._before.get(key)
            before = known[1] if known is not None and known[0]() is model else StatsSnapshot()
            seen[key] = (weakref.ref(model), now)
            sample = model_sample(
                model.name, model.version, now - before, model.queued_count, model.slot_usage
            )
            samples.append(sample)
        self._before = seen
        return samples


def model_sample(
    name: str,
    version: int,
    interval: StatsSnapshot,
    queued: int,
    usage: SlotUsage | None = None,
) -> ModelSample:
    """`usage` of a sequence model."""
    p50, p95, p99 = interval.latency_percentiles_us((50, 95, 99))
    return ModelSample(
        name=name,
        version=str(version),
        success_count=interval.success.count,
        failure_count=interval.fail.count,
        inference_count=interval.inference_count,
        execution_count=interval.execution_count,
        queued=queued,
        rejected_count=interval.failures.get(FailureReason.REJECTED, 0),
        p50_us=p50,
        p95_us=p95,
        p99_us=p99,
        queue_us=_mean_us(interval.queue),
        compute_input_us=_mean_us(interval.compute_input),
        compute_infer_us=_mean_us(interval.compute_infer),
        compute_output_us=_mean_us(interval.compute_output),
        batch_sizes={
            str(size): item.count for size, item in interval.batches.items() if item.count
        },
        close_reasons={reason: count for reason, count in interval.close_reasons.items() if count},
        latency_buckets={
            str(bound): count
            for bound, count in zip(
                (*LATENCY_BOUNDS_US, _BEYOND_US), interval.latency_buckets, strict=False
            )
            if count
        },
        sequence_slots=usage.slots if usage else 0,
        active_sequences=usage.active if usage else 0,
        backlog_sequences=usage.backlog if usage else 0,
    )


def _mean_us(duration: Duration) -> float:
    return duration.total_ns / duration.count / 1000 if duration.count else 0.0


class ProcessSampler:
    """CPU and memory of this process and everything below it."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._cpu_s: dict[int, float] = {}

    def sample(self, interval_s: float) -> tuple[float, int]:
        """CPU in percent of one core over the interval, and resident bytes now."""
        cpu_s: dict[int, float] = {}
        memory_bytes = 0
        for process in self._tree():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    memory_bytes += process.memory_info().rss
            except psutil.Error:
                continue
            cpu_s[process.pid] = times.user + times.system
        # A process that is new in this interval has used all of its time in it; one that has ended
        # takes its last moments with it.
        first = not self._cpu_s
        used_s = sum(value - self._cpu_s.get(pid, 0.0) for pid, value in cpu_s.items())
        self._cpu_s = cpu_s
        return (0.0 if first or interval_s <= 0 else 100 * used_s / interval_s), memory_bytes

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return [self._process]


def backend_states(registry: BackendRegistry) -> list[BackendState]:
    """What the worker can run models with. Any thread; looks into a folder at most."""
    return [
        BackendState(
            item.name,
            item.origin,
            item.location,
            item.package,
            item.version,
            list(item.devices),
            item.problem,
            item.install,
        )
        for item in installed.describe(registry)
    ]


def device_samples() -> list[DeviceSample]:
    """Every GPU of this machine. Blocks shortly; figures that a device does not give are 0."""
    names = {device.index: device.name for device in devices.list_gpus()}
    return [
        DeviceSample(
            index=item.index,
            uuid=item.uuid,
            name=names.get(item.index, "GPU"),
            utilization=item.utilization or 0.0,
            memory_used_bytes=item.memory_used_bytes or 0,
            memory_total_bytes=item.memory_total_bytes or 0,
            power_watts=item.power_usage_watts or 0.0,
            temperature_celsius=item.temperature_celsius or 0.0,
        )
        for item in devices.sample_gpus()
    ]
