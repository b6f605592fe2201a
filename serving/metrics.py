"""Prometheus text of the models' counters: Triton's names and labels, and Conch's own families.

Pure: what to show is passed in, nothing is registered. A model's series appear when it is loaded
and go when it is unloaded, because only the models passed in are shown. Loop thread.
Source: spec metrics.md 6.1 (MET-001 to MET-040).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from serving.stats import LATENCY_BOUNDS_US, StatsSnapshot

CONTENT_TYPE = "text/plain; charset=utf-8"

_LATENCY_STEP = 4
"""Every fourth bound is shown, a factor of two apart; the buckets between are summed up."""


class SlotCounters(Protocol):
    """How full a sequence model is."""

    @property
    def slots(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def backlog(self) -> int: ...


class ModelCounters(Protocol):
    """What a model shows of itself; `serving.model.Model` has it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def namespace(self) -> str:
        """Empty without model namespacing."""

    @property
    def metric_tags(self) -> Mapping[str, str]: ...
    @property
    def load_duration_s(self) -> float: ...
    @property
    def queued_count(self) -> int: ...
    @property
    def inflight_count(self) -> int: ...
    @property
    def instance_count(self) -> int: ...
    @property
    def slot_usage(self) -> SlotCounters | None:
        """None where the model serves no sequences."""

    def snapshot(self) -> StatsSnapshot: ...


class GpuCounters(Protocol):
    """What a GPU shows of itself; None where the device does not report it."""

    @property
    def uuid(self) -> str: ...
    @property
    def utilization(self) -> float | None: ...
    @property
    def memory_used_bytes(self) -> int | None: ...
    @property
    def memory_total_bytes(self) -> int | None: ...
    @property
    def power_usage_watts(self) -> float | None: ...
    @property
    def power_limit_watts(self) -> float | None: ...
    @property
    def energy_joules(self) -> float | None: ...


class HostCounters(Protocol):
    @property
    def cpu_utilization(self) -> float: ...
    @property
    def memory_used_bytes(self) -> int: ...
    @property
    def memory_total_bytes(self) -> int: ...


class _Family:
    """Lines of one metric family; none at all when it has no series."""

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self._head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self._lines: list[str] = []

    def add(self, labels: str, value: float, suffix: str = "") -> None:
        braces = f"{{{labels}}}" if labels else ""
        self._lines.append(f"{self.name}{suffix}{braces} {_number(value)}\n")

    def __str__(self) -> str:
        return self._head + "".join(self._lines) if self._lines else ""


def render(
    models: Iterable[ModelCounters],
    gpus: Sequence[GpuCounters] = (),
    host: HostCounters | None = None,
) -> str:
    """The whole page."""
    rows = [(model, _labels(model), model.snapshot()) for model in models]
    families = [
        *_request_families(rows),
        *_duration_families(rows),
        *_conch_families(rows),
        *_sequence_families(rows),
        *_gpu_families(gpus),
    ]
    if host is not None:
        families += _host_families(host)
    return "".join(map(str, families))


_Rows = list[tuple[ModelCounters, str, StatsSnapshot]]


def _request_families(rows: _Rows) -> list[_Family]:
    success = _Family(
        "nv_inference_request_success",
        "counter",
        "Number of successful inference requests, all batch sizes",
    )
    failure = _Family(
        "nv_inference_request_failure",
        "counter",
        "Number of failed inference requests, all batch sizes",
    )
    count = _Family(
        "nv_inference_count",
        "counter",
        "Number of inferences performed (does not include cached requests)",
    )
    executions = _Family(
        "nv_inference_exec_count",
        "counter",
        "Number of model executions performed (does not include cached requests)",
    )
    pending = _Family(
        "nv_inference_pending_request_count",
        "gauge",
        "Instantaneous number of pending requests awaiting execution per-model",
    )
    load = _Family("nv_model_load_duration_secs", "gauge", "Model load time in seconds")
    for model, labels, snapshot in rows:
        success.add(labels, snapshot.success.count)
        for reason, failures in snapshot.failures.items():
            failure.add(f'{labels},reason="{reason.value}"', failures)
        count.add(labels, snapshot.inference_count)
        executions.add(labels, snapshot.execution_count)
        pending.add(labels, model.queued_count)
        load.add(labels, model.load_duration_s)
    return [success, failure, count, executions, pending, load]


def _duration_families(rows: _Rows) -> list[_Family]:
    families = []
    for stage, field, text in (
        ("request", "success", "Cumulative inference request duration in microseconds"),
        ("queue", "queue", "Cumulative inference queuing duration in microseconds"),
        ("compute_input", "compute_input", "Cumulative compute input duration in microseconds"),
        ("compute_infer", "compute_infer", "Cumulative compute inference duration in microseconds"),
        ("compute_output", "compute_output", "Cumulative compute output duration in microseconds"),
    ):
        family = _Family(f"nv_inference_{stage}_duration_us", "counter", text)
        for _, labels, snapshot in rows:
            duration = getattr(snapshot, field).total_ns
            if stage == "request":
                duration += snapshot.fail.total_ns
            family.add(labels, duration // 1000)
        families.append(family)
    return families


def _conch_families(rows: _Rows) -> list[_Family]:
    latency = _Family(
        "conch_request_latency_us",
        "histogram",
        "Duration of successful requests in microseconds",
    )
    batches = _Family("conch_batch_size", "histogram", "Executed batch sizes")
    reasons = _Family("conch_batch_close_total", "counter", "Executions by why the batch closed")
    invalid = _Family(
        "conch_invalid_requests_total", "counter", "Requests refused before they were queued"
    )
    queued = _Family("conch_queue_depth", "gauge", "Requests that wait for execution")
    inflight = _Family("conch_inflight_requests", "gauge", "Requests that wait or execute")
    instances = _Family("conch_model_instances", "gauge", "Instances that take requests")
    for model, labels, snapshot in rows:
        _add_latency(latency, labels, snapshot)
        _add_batches(batches, labels, snapshot)
        for reason, count in sorted(snapshot.close_reasons.items()):
            reasons.add(f'{labels},reason="{_escape(reason)}"', count)
        invalid.add(labels, snapshot.invalid_count)
        queued.add(labels, model.queued_count)
        inflight.add(labels, model.inflight_count)
        instances.add(labels, model.instance_count)
    return [latency, batches, reasons, invalid, queued, inflight, instances]


def _sequence_families(rows: _Rows) -> list[_Family]:
    slots = _Family("conch_sequence_slots", "gauge", "Sequences that can be served at a time")
    active = _Family("conch_active_sequences", "gauge", "Sequences that own a slot")
    backlog = _Family("conch_backlog_sequences", "gauge", "Sequences that wait for a slot")
    for model, labels, _ in rows:
        if (usage := model.slot_usage) is not None:
            slots.add(labels, usage.slots)
            active.add(labels, usage.active)
            backlog.add(labels, usage.backlog)
    return [slots, active, backlog]


def _add_latency(family: _Family, labels: str, snapshot: StatsSnapshot) -> None:
    seen = 0
    for index, (bound, count) in enumerate(
        zip(LATENCY_BOUNDS_US, snapshot.latency_buckets, strict=False)
    ):
        seen += count
        if index % _LATENCY_STEP == 0:
            family.add(f'{labels},le="{bound}"', seen, "_bucket")
    family.add(f'{labels},le="+Inf"', sum(snapshot.latency_buckets), "_bucket")
    family.add(labels, snapshot.success.total_ns / 1000, "_sum")
    family.add(labels, sum(snapshot.latency_buckets), "_count")


def _add_batches(family: _Family, labels: str, snapshot: StatsSnapshot) -> None:
    largest = max(snapshot.batches, default=0)
    bound = 1
    while True:
        seen = sum(item.count for size, item in snapshot.batches.items() if size <= bound)
        family.add(f'{labels},le="{bound}"', seen, "_bucket")
        if bound >= largest:
            break
        bound *= 2
    total = sum(item.count for item in snapshot.batches.values())
    family.add(f'{labels},le="+Inf"', total, "_bucket")
    items = sum(size * item.count for size, item in snapshot.batches.items())
    family.add(labels, items, "_sum")
    family.add(labels, total, "_count")


def _gpu_families(gpus: Sequence[GpuCounters]) -> list[_Family]:
    families = []
    for name, kind, field, text in (
        ("nv_gpu_utilization", "gauge", "utilization", "GPU utilization rate [0.0 - 1.0)"),
        ("nv_gpu_memory_total_bytes", "gauge", "memory_total_bytes", "GPU total memory, in bytes"),
        ("nv_gpu_memory_used_bytes", "gauge", "memory_used_bytes", "GPU used memory, in bytes"),
        ("nv_gpu_power_usage", "gauge", "power_usage_watts", "GPU power usage in watts"),
        ("nv_gpu_power_limit", "gauge", "power_limit_watts", "GPU power limit in watts"),
        (
            "nv_energy_consumption",
            "counter",
            "energy_joules",
            "GPU energy consumption in joules since the driver started",
        ),
    ):
        family = _Family(name, kind, text)
        for gpu in gpus:
            value = getattr(gpu, field)
            if value is not None:
                family.add(f'gpu_uuid="{_escape(gpu.uuid)}"', value)
        families.append(family)
    return families


def _host_families(host: HostCounters) -> list[_Family]:
    utilization = _Family("nv_cpu_utilization", "gauge", "CPU utilization rate [0.0 - 1.0]")
    utilization.add("", host.cpu_utilization)
    total = _Family("nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes")
    total.add("", host.memory_total_bytes)
    used = _Family("nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes")
    used.add("", host.memory_used_bytes)
    return [utilization, total, used]


def _labels(model: ModelCounters) -> str:
    pairs = [("model", model.name), ("version", str(model.version))]
    if model.namespace:
        pairs.insert(1, ("namespace", model.namespace))
    pairs += [(f"_{key}", value) for key, value in sorted(model.metric_tags.items())]
    return ",".join(f'{_label_name(key)}="{_escape(value)}"' for key, value in pairs)


def _label_name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"
