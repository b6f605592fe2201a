"""Everything that crosses the wire between console and workers, as typed JSON.

Times are seconds since the epoch (float), durations microseconds. Tensors never appear here.
"""

from __future__ import annotations

import msgspec


class ModelVersionState(msgspec.Struct, frozen=True):
    """One row of a worker's repository index, as of its last heartbeat."""

    name: str
    version: str = ""
    """Empty for a model that was never loaded."""
    state: str = ""
    """READY, LOADING, UNLOADING, UNAVAILABLE, or empty: never asked for."""
    reason: str = ""
    backend: str = ""
    instances: int = 0

    @property
    def is_idle(self) -> bool:
        """Nothing of it is loaded, and nobody tried in vain."""
        return self.state in ("", "UNAVAILABLE") and self.reason.partition(",")[0] in IDLE_REASONS


IDLE_REASONS = frozenset({"", "unloaded"})


class DeviceSample(msgspec.Struct, frozen=True):
    """One GPU, by NVML."""

    index: int
    uuid: str
    name: str
    utilization: float
    """0 to 1."""
    memory_used_bytes: int
    memory_total_bytes: int
    power_watts: float = 0.0
    temperature_celsius: float = 0.0


class BackendState(msgspec.Struct, frozen=True):
    """A backend that a worker knows, and the runtime behind it."""

    name: str
    origin: str = ""
    """built in, entry point, backend directory, model folder."""
    location: str = ""
    package: str = ""
    """Of the runtime; empty where it needs none, or lacks it."""
    version: str = ""
    devices: list[str] = []
    """What the runtime can use: CPU, CUDA, providers."""
    problem: str = ""
    install: str = ""
    """The command that brings what is missing; empty where nothing is."""

    @property
    def is_missing(self) -> bool:
        """Its runtime is not installed."""
        return bool(self.install) and not self.package


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker as its registry entry describes it."""

    worker_id: str
    host: str
    pid: int
    version: str
    state: str
    """starting, ready, draining, stopped (it ended in order), or lost (its heartbeat expired; set
    by the reader)."""
    started_at: float
    last_seen: float
    http_url: str
    grpc_url: str
    metrics_url: str
    repositories: list[str] = []
    models: list[ModelVersionState] = []
    devices: list[DeviceSample] = []
    backends: list[BackendState] = []

    @property
    def is_gone(self) -> bool:
        """Nothing of it can be reached: it takes no orders and serves nothing."""
        return self.state in ("lost", "stopped")


class ModelSample(msgspec.Struct, frozen=True):
    """What one model version did in the last interval; counts are of the interval."""

    name: str
    version: str
    success_count: int = 0
    failure_count: int = 0
    inference_count: int = 0
    execution_count: int = 0
    queued: int = 0
    """Requests that wait now."""
    rejected_count: int = 0
    """Of the failures: requests that the queue turned away (full, timed out in it, draining)."""
    p50_us: float = 0.0
    p95_us: float = 0.0
    p99_us: float = 0.0
    queue_us: float = 0.0
    """Mean over the interval, as the three below."""
    compute_input_us: float = 0.0
    compute_infer_us: float = 0.0
    compute_output_us: float = 0.0
    batch_sizes: dict[str, int] = {}
    """Executed batch size -> executions."""
    close_reasons: dict[str, int] = {}
    """Why batches closed (full, preferred, ...; see docs/reference/batching.md) -> how often."""
    latency_buckets: dict[str, int] = {}
    """Upper bound of a latency bucket in us -> requests; sums over models and time."""
    sequence_slots: int = 0
    """Sequences that can be served at a time; 0 for a model without sequences."""
    active_sequences: int = 0
    """Sequences that own a slot now."""
    backlog_sequences: int = 0
    """Sequences that wait for a slot now."""


class Sample(msgspec.Struct, frozen=True):
    """Telemetry of one worker, once a second."""

    worker_id: str
    at: float
    interval_s: float
    cpu_percent: float
    """Of one core, the worker and its child processes together."""
    memory_bytes: int
    """Resident, the worker and its child processes together."""
    models: list[ModelSample] = []
    devices: list[DeviceSample] = []


class Event(msgspec.Struct, frozen=True):
    """A state change that a worker announces."""

    worker_id: str
    at: float
    kind: str
    """worker_started, worker_stopping, model_state, operation_finished."""
    model: str = ""
    version: str = ""
    state: str = ""
    reason: str = ""
    operation_id: str = ""


class OperationResult(msgspec.Struct, frozen=True):
    """How a load or unload ended; kept for a day under its operation id."""

    operation_id: str
    worker_id: str
    action: str
    """load or unload."""
    model: str
    is_success: bool
    error: str
    started_at: float
    finished_at: float
    ready_versions: list[str] = []


class ModelDescription(msgspec.Struct, frozen=True):
    """A loaded model as its worker sees it: the bodies of Triton's metadata, config, statistics."""

    metadata: dict[str, object]
    config: dict[str, object]
    statistics: dict[str, object]


class Reply(msgspec.Struct, frozen=True):
    """The answer to a question that its asker waits for: one of the two, or an error."""

    error: str = ""
    description: ModelDescription | None = None
    models: list[ModelVersionState] | None = None
