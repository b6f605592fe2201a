"""What `serving.metrics` wants to know of models, devices and what they share. Types only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from serving.latencies import Histogram, Summaries
from serving.stats import StatsSnapshot


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
    def is_cached(self) -> bool:
        """Its answers go into the response cache."""

    @property
    def turns(self) -> TurnCounters | None:
        """None where no rate limiter is on."""

    @property
    def slot_usage(self) -> SlotCounters | None:
        """None where the model serves no sequences."""

    @property
    def gpu_uuid(self) -> str:
        """Of the GPU that its instances sit on; empty where that is none, or several."""

    @property
    def process_bytes(self) -> int | None:
        """Memory of its instance processes; None where it has none."""

    @property
    def first_response(self) -> Histogram | None:
        """None where it is not kept."""

    @property
    def summaries(self) -> Summaries | None:
        """None where they are not kept."""

    def snapshot(self) -> StatsSnapshot: ...


class ServerCounters(Protocol):
    @property
    def resident_bytes(self) -> int: ...
    @property
    def state_changes(self) -> Mapping[str, int]:
        """State -> how many versions came to it."""


class WaitCounters(Protocol):
    count: int
    total_ns: int


class TurnCounters(Protocol):
    """What one model has waited for resources."""

    @property
    def waits(self) -> WaitCounters: ...
    @property
    def waiting_count(self) -> int: ...


class CacheCounters(Protocol):
    """The response cache; see `serving.cache.base.CacheCounters`."""

    hits: int
    misses: int
    evictions: int
    lookup_ns: int
    insertion_ns: int
    entries: int
    used_bytes: int
    capacity_bytes: int
    failures: int
    is_open: bool


class ResourceCounters(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def device(self) -> int | None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def used(self) -> int: ...


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
