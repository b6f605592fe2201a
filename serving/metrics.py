"""Prometheus text of the models' counters: Triton's names and labels, and Conch's own families.

Pure: what to show is passed in, nothing is registered. A model's series appear when it is loaded
and go when it is unloaded, because only the models passed in are shown. Loop thread.
Source: spec metrics.md 6.1 (MET-001 to MET-040).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serving.metrics_counters import (
    CacheCounters,
    GpuCounters,
    HostCounters,
    ModelCounters,
    ResourceCounters,
)
from serving.stats import LATENCY_BOUNDS_US, StatsSnapshot

CONTENT_TYPE = "text/plain; charset=utf-8"

_LATENCY_STEP = 4
"""Every fourth bound is shown, a factor of two apart; the buckets between are summed up."""


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
    *,
    cache: CacheCounters | None = None,
    resources: Sequence[ResourceCounters] = (),
) -> str:
    """The whole page."""
    rows = [(model, _labels(model), model.snapshot()) for model in models]
    families = [
        *_request_families(rows),
        *_duration_families(rows),
        *_conch_families(rows),
        *_sequence_families(rows),
        *_cached_families(rows),
        *_cache_families(cache),
        *_turn_families(rows, resources),
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


def _cached_families(rows: _Rows) -> list[_Family]:
    hits = _Family("nv_cache_num_hits_per_model", "counter", "Number of cache hits per model")
    misses = _Family("nv_cache_num_misses_per_model", "counter", "Number of cache misses per model")
    hit_us = _Family(
        "nv_cache_hit_duration_per_model",
        "counter",
        "Total cache hit duration per model, in microseconds",
    )
    miss_us = _Family(
        "nv_cache_miss_duration_per_model",
        "counter",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
    )
    for model, labels, snapshot in rows:
        if model.is_cached:
            hits.add(labels, snapshot.cache_hit.count)
            misses.add(labels, snapshot.cache_miss.count)
            hit_us.add(labels, snapshot.cache_hit.total_ns // 1000)
            miss_us.add(labels, snapshot.cache_miss.total_ns // 1000)
    return [hits, misses, hit_us, miss_us]


def _cache_families(cache: CacheCounters | None) -> list[_Family]:
    if cache is None:
        return []
    figures: list[tuple[str, str, str, float]] = [
        ("nv_cache_num_lookups", "gauge", "Number of cache lookups", cache.hits + cache.misses),
        ("nv_cache_num_hits", "gauge", "Number of cache hits", cache.hits),
        ("nv_cache_num_misses", "gauge", "Number of cache misses", cache.misses),
        ("nv_cache_num_evictions", "gauge", "Number of cache evictions", cache.evictions),
        ("nv_cache_lookup_duration", "gauge", "Lookups in microseconds", cache.lookup_ns // 1000),
        (
            "nv_cache_insertion_duration",
            "gauge",
            "Insertions in microseconds",
            cache.insertion_ns // 1000,
        ),
        ("conch_cache_failures_total", "counter", "Calls that the store failed", cache.failures),
        ("conch_cache_open", "gauge", "1 while the store of the cache answers", int(cache.is_open)),
    ]
    if cache.capacity_bytes:
        share = cache.used_bytes / cache.capacity_bytes
        figures += [
            ("nv_cache_num_entries", "gauge", "Number of responses stored", cache.entries),
            ("nv_cache_util", "gauge", "Cache utilization [0.0 - 1.0]", share),
        ]
    families = []
    for name, kind, text, value in figures:
        family = _Family(name, kind, text)
        family.add("", value)
        families.append(family)
    return families


def _turn_families(rows: _Rows, resources: Sequence[ResourceCounters]) -> list[_Family]:
    waiting = _Family(
        "conch_rate_limit_waiting", "gauge", "Instances that have work and wait for resources"
    )
    waits = _Family(
        "conch_rate_limit_waits_total", "counter", "Executions that had to wait for resources"
    )
    waited = _Family(
        "conch_rate_limit_wait_us_total", "counter", "Waits for resources in microseconds"
    )
    for model, labels, _ in rows:
        if (turns := model.turns) is not None:
            waiting.add(labels, turns.waiting_count)
            waits.add(labels, turns.waits.count)
            waited.add(labels, turns.waits.total_ns // 1000)
    capacity = _Family("conch_rate_limit_capacity", "gauge", "How much there is of a resource")
    used = _Family("conch_rate_limit_used", "gauge", "How much of a resource is in use")
    for item in resources:
        device = "all" if item.device is None else item.device
        labels = f'resource="{_escape(item.name)}",device="{device}"'
        capacity.add(labels, item.capacity)
        used.add(labels, item.used)
    return [waiting, waits, waited, capacity, used]


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
