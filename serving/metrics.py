"""Prometheus text of the models' counters: Triton's names and labels, and Conch's own families.

Pure: what to show is passed in, nothing is registered. A model's series appear when it is loaded
and go when it is unloaded, because only the models passed in are shown. Loop thread.
Source: spec metrics.md 6.1 (MET-001 to MET-050).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serving.metrics_config import MetricsConfig
from serving.metrics_counters import (
    CacheCounters,
    GpuCounters,
    HostCounters,
    ModelCounters,
    ResourceCounters,
    ServerCounters,
)
from serving.metrics_family import Family, escape
from serving.metrics_latencies import Rows, latency_families
from serving.stats import LATENCY_BOUNDS_US, StatsSnapshot

_DEFAULT = MetricsConfig()
CONTENT_TYPE = "text/plain; charset=utf-8"

_LATENCY_STEP = 4
"""Every fourth bound is shown, a factor of two apart; the buckets between are summed up."""


def render(
    models: Iterable[ModelCounters],
    gpus: Sequence[GpuCounters] = (),
    host: HostCounters | None = None,
    *,
    server: ServerCounters | None = None,
    cache: CacheCounters | None = None,
    resources: Sequence[ResourceCounters] = (),
    config: MetricsConfig = _DEFAULT,
) -> str:
    """The whole page."""
    rows = [(model, _labels(model), model.snapshot()) for model in models]
    families = [
        *_request_families(rows),
        *latency_families(rows, config),
        *_conch_families(rows),
        *_sequence_families(rows),
        *_cache_families(cache),
        *_turn_families(rows, resources),
        *_gpu_families(gpus),
    ]
    if server is not None:
        families += _server_families(server)
    if host is not None:
        families += _host_families(host)
    return "".join(map(str, families))


def _request_families(rows: Rows) -> list[Family]:
    success = Family(
        "nv_inference_request_success",
        "counter",
        "Number of successful inference requests, all batch sizes",
    )
    failure = Family(
        "nv_inference_request_failure",
        "counter",
        "Number of failed inference requests, all batch sizes",
    )
    count = Family(
        "nv_inference_count",
        "counter",
        "Number of inferences performed (does not include cached requests)",
    )
    executions = Family(
        "nv_inference_exec_count",
        "counter",
        "Number of model executions performed (does not include cached requests)",
    )
    pending = Family(
        "nv_inference_pending_request_count",
        "gauge",
        "Instantaneous number of pending requests awaiting execution per-model",
    )
    load = Family("nv_model_load_duration_secs", "gauge", "Model load time in seconds")
    for model, labels, snapshot in rows:
        success.add(labels, snapshot.success.count)
        for reason, failures in snapshot.failures.items():
            failure.add(f'{labels},reason="{reason.value}"', failures)
        count.add(labels, snapshot.inference_count)
        executions.add(labels, snapshot.execution_count)
        pending.add(labels, model.queued_count)
        load.add(labels, model.load_duration_s)
    return [success, failure, count, executions, pending, load]


def _conch_families(rows: Rows) -> list[Family]:
    latency = Family(
        "conch_request_latency_us",
        "histogram",
        "Duration of successful requests in microseconds",
    )
    batches = Family("conch_batch_size", "histogram", "Executed batch sizes")
    reasons = Family("conch_batch_close_total", "counter", "Executions by why the batch closed")
    invalid = Family(
        "conch_invalid_requests_total", "counter", "Requests refused before they were queued"
    )
    queued = Family("conch_queue_depth", "gauge", "Requests that wait for execution")
    inflight = Family("conch_inflight_requests", "gauge", "Requests that wait or execute")
    instances = Family("conch_model_instances", "gauge", "Instances that take requests")
    memory = Family(
        "conch_model_process_bytes", "gauge", "Memory that the model's own processes do not share"
    )
    for model, labels, snapshot in rows:
        _add_latency(latency, labels, snapshot)
        _add_batches(batches, labels, snapshot)
        for reason, count in sorted(snapshot.close_reasons.items()):
            reasons.add(f'{labels},reason="{escape(reason)}"', count)
        invalid.add(labels, snapshot.invalid_count)
        queued.add(labels, model.queued_count)
        inflight.add(labels, model.inflight_count)
        instances.add(labels, model.instance_count)
        if model.process_bytes is not None:
            memory.add(labels, model.process_bytes)
    return [latency, batches, reasons, invalid, queued, inflight, instances, memory]


def _sequence_families(rows: Rows) -> list[Family]:
    slots = Family("conch_sequence_slots", "gauge", "Sequences that can be served at a time")
    active = Family("conch_active_sequences", "gauge", "Sequences that own a slot")
    backlog = Family("conch_backlog_sequences", "gauge", "Sequences that wait for a slot")
    for model, labels, _ in rows:
        if (usage := model.slot_usage) is not None:
            slots.add(labels, usage.slots)
            active.add(labels, usage.active)
            backlog.add(labels, usage.backlog)
    return [slots, active, backlog]


def _cache_families(cache: CacheCounters | None) -> list[Family]:
    if cache is None:
        return []
    figures: list[tuple[str, str, str, float]] = [
        (
            "nv_cache_num_lookups",
            "gauge",
            "Number of cache lookups in response cache",
            cache.hits + cache.misses,
        ),
        ("nv_cache_num_hits", "gauge", "Number of cache hits in response cache", cache.hits),
        ("nv_cache_num_misses", "gauge", "Number of cache misses in response cache", cache.misses),
        (
            "nv_cache_num_evictions",
            "gauge",
            "Number of cache evictions in response cache",
            cache.evictions,
        ),
        (
            "nv_cache_lookup_duration",
            "gauge",
            "Total cache lookup duration (hit and miss), in microseconds",
            cache.lookup_ns // 1000,
        ),
        (
            "nv_cache_insertion_duration",
            "gauge",
            "Total cache insertion duration, in microseconds",
            cache.insertion_ns // 1000,
        ),
        ("conch_cache_failures_total", "counter", "Calls that the store failed", cache.failures),
        ("conch_cache_open", "gauge", "1 while the store of the cache answers", int(cache.is_open)),
    ]
    if cache.capacity_bytes:
        share = cache.used_bytes / cache.capacity_bytes
        figures += [
            (
                "nv_cache_num_entries",
                "gauge",
                "Number of responses stored in response cache",
                cache.entries,
            ),
            ("nv_cache_util", "gauge", "Cache utilization [0.0 - 1.0]", share),
        ]
    families = []
    for name, kind, text, value in figures:
        family = Family(name, kind, text)
        family.add("", value)
        families.append(family)
    return families


def _turn_families(rows: Rows, resources: Sequence[ResourceCounters]) -> list[Family]:
    waiting = Family(
        "conch_rate_limit_waiting", "gauge", "Instances that have work and wait for resources"
    )
    waits = Family(
        "conch_rate_limit_waits_total", "counter", "Executions that had to wait for resources"
    )
    waited = Family(
        "conch_rate_limit_wait_us_total", "counter", "Waits for resources in microseconds"
    )
    for model, labels, _ in rows:
        if (turns := model.turns) is not None:
            waiting.add(labels, turns.waiting_count)
            waits.add(labels, turns.waits.count)
            waited.add(labels, turns.waits.total_ns // 1000)
    capacity = Family("conch_rate_limit_capacity", "gauge", "How much there is of a resource")
    used = Family("conch_rate_limit_used", "gauge", "How much of a resource is in use")
    for item in resources:
        device = "all" if item.device is None else item.device
        labels = f'resource="{escape(item.name)}",device="{device}"'
        capacity.add(labels, item.capacity)
        used.add(labels, item.used)
    return [waiting, waits, waited, capacity, used]


def _add_latency(family: Family, labels: str, snapshot: StatsSnapshot) -> None:
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


def _add_batches(family: Family, labels: str, snapshot: StatsSnapshot) -> None:
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


def _gpu_families(gpus: Sequence[GpuCounters]) -> list[Family]:
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
        family = Family(name, kind, text)
        for gpu in gpus:
            value = getattr(gpu, field)
            if value is not None:
                family.add(f'gpu_uuid="{escape(gpu.uuid)}"', value)
        families.append(family)
    return families


def _host_families(host: HostCounters) -> list[Family]:
    utilization = Family("nv_cpu_utilization", "gauge", "CPU utilization rate [0.0 - 1.0]")
    utilization.add("", host.cpu_utilization)
    total = Family("nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes")
    total.add("", host.memory_total_bytes)
    used = Family("nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes")
    used.add("", host.memory_used_bytes)
    return [utilization, total, used]


def _pool_families() -> list[Family]:
    """Nothing is pinned: the runtimes stage their own copies. The pool's size is therefore 0."""
    total = Family(
        "nv_pinned_memory_pool_total_bytes",
        "gauge",
        "Pinned memory pool total memory size, in bytes",
    )
    used = Family(
        "nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory pool used memory size, in bytes"
    )
    for family in (total, used):
        family.add("", 0)
    return [total, used]


def _server_families(server: ServerCounters) -> list[Family]:
    resident = Family(
        "conch_server_resident_bytes", "gauge", "Resident memory of the server's own process"
    )
    resident.add("", server.resident_bytes)
    changes = Family(
        "conch_model_state_changes_total", "counter", "Versions of models that came to a state"
    )
    for state, count in sorted(server.state_changes.items()):
        changes.add(f'state="{escape(state)}"', count)
    return [*_pool_families(), resident, changes]


def _labels(model: ModelCounters) -> str:
    pairs = [("model", model.name), ("version", str(model.version))]
    if model.namespace:
        pairs.insert(1, ("namespace", model.namespace))
    if model.gpu_uuid:
        pairs.append(("gpu_uuid", model.gpu_uuid))
    pairs += [(f"_{key}", value) for key, value in sorted(model.metric_tags.items())]
    return ",".join(f'{_label_name(key)}="{escape(value)}"' for key, value in pairs)


def _label_name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
