"""Start-up options of the core, named after tritonserver's; parsed in `serving.__main__`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.host_policies import HostPolicy
from serving.metrics_config import MetricsConfig
from serving.restrictions import Restriction


class ControlMode(enum.Enum):
    NONE = "none"
    EXPLICIT = "explicit"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """How repositories in S3, Google Cloud Storage and Azure are reached and cached."""

    credential_path: Path | None = None
    """JSON as tritonserver's; None: what TRITON_CLOUD_CREDENTIAL_PATH names, if anything."""
    cache_directory: Path | None = None
    """None: conch/models in the user's cache directory."""
    cache_byte_size: int = 50 * 10**9
    """0: files go when the model that uses them is unloaded."""
    timeout_secs: float = 30.0
    """How long one answer of the store may take."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Which response cache, and what it is told; see `serving.cache.registry`."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    """Where caches lie that are neither built in nor installed."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    model_repositories: tuple[Path | str, ...]
    """Directories, and URLs (s3://, gs://, as://) as texts."""
    server_id: str = "triton"
    model_control_mode: ControlMode = ControlMode.NONE
    load_models: tuple[str, ...] = ()
    """Explicit mode: names to load at start; ("*",) loads all."""
    repository_poll_secs: int = 15
    exit_on_error: bool = True
    strict_readiness: bool = True
    auto_complete_config: bool = True
    model_load_thread_count: int = 4
    model_load_retry_count: int = 0
    """How often a version that failed to load, and might succeed now, is tried again."""
    model_namespacing: bool = False
    """Each repository is a namespace: the same model name may be served from several."""
    model_config_name: str = ""
    """Models that have configs/<name>.pbtxt take it as their config."""
    model_load_gpu_limits: Mapping[int, float] = field(default_factory=dict)
    """Device -> share of its memory; a load is refused while more than that is in use."""
    model_load_timeout_secs: float = 600.0
    """Deadline of LOADING; afterwards the load fails with a reason."""
    model_warmup_timeout_secs: float = 300.0
    """How long the samples of model_warmup may take; within the deadline of the load."""
    model_drain_timeout_secs: float = 600.0
    """How long requests may go on in a model that was unloaded or replaced."""
    exit_timeout_secs: float = 30.0
    cache: CacheOptions | None = None
    """None: nothing is cached, whatever configs say."""
    rate_limit: bool = False
    """Instances start only when the resources of their rate_limiter are free."""
    rate_limit_resources: Mapping[tuple[str, int | None], int] = field(default_factory=dict)
    """(resource in lower case, device or None for each) -> count."""
    repoagent_directory: Path | None = None
    """Where repository agents lie that are neither built in nor installed."""
    backend_directory: Path | None = None
    backend_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Backend name ("" for all) -> key -> value."""
    min_compute_capability: float = 6.0
    """GPUs below it are not used."""
    model_log_directory: Path | None = None
    """Where each model has a log of its own; None for none."""
    host_policies: Mapping[str, HostPolicy] = field(default_factory=dict)
    """Name -> where instances that use it run."""
    metrics_config: MetricsConfig = MetricsConfig()
    """Which latency families are kept and shown."""
    cloud: CloudOptions = field(default_factory=CloudOptions)


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """How the gRPC front end treats connections. Defaults are tritonserver's."""

    restricted: tuple[Restriction, ...] = ()
    use_ssl: bool = False
    use_ssl_mutual: bool = False
    """Clients must show a certificate that `root_cert` has signed."""
    server_cert: Path | None = None
    server_key: Path | None = None
    root_cert: Path | None = None
    header_forward_pattern: str = ""
    """Names of metadata that becomes request parameters; "" for none."""
    reuse_port: bool = False
    """Other servers of this machine may listen on the same port (SO_REUSEPORT)."""
    response_compression_level: int = 0
    """0 none to 3 high."""
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_recv_ping_interval_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_s: int = 0
    """0: no limit."""
    max_connection_age_grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Where traces go in mode opentelemetry, and how. Defaults are tritonserver's."""

    url: str = "http://localhost:4318/v1/traces"
    resource: tuple[tuple[str, str], ...] = (("service.name", "triton-inference-server"),)
    max_queue_size: int = 2048
    """Spans that wait; further ones are lost."""
    schedule_delay_ms: int = 5000
    """How long a span waits for others at most."""
    max_export_batch_size: int = 512

    def as_json(self) -> dict[str, str | list[str]]:
        return {
            "url": self.url,
            "resource": ",".join(f"{key}={value}" for key, value in self.resource),
            "bsp_schedule_delay": str(self.schedule_delay_ms),
            "bsp_max_export_batch_size": str(self.max_export_batch_size),
            "bsp_max_queue_size": str(self.max_queue_size),
        }


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Which requests are traced, and where to."""

    levels: tuple[str, ...] = ("OFF",)
    rate: int = 1000
    """One request of so many is traced; 0 traces none."""
    count: int = -1
    """How many more traces; -1 is no limit."""
    log_frequency: int = 0
    """Traces a file; 0 puts all into one."""
    file: str = ""
    telemetry: TelemetryOptions | None = None
    """None: mode triton, which writes the file."""

    @property
    def has_timestamps(self) -> bool:
        return "TIMESTAMPS" in self.levels

    @property
    def has_tensors(self) -> bool:
        return "TENSORS" in self.levels

    @property
    def is_on(self) -> bool:
        if self.telemetry is not None:
            return self.has_timestamps  # callers that trace are traced whatever the rate is
        is_wanted = self.has_timestamps or self.has_tensors
        return is_wanted and bool(self.rate and self.count and self.file)

    def as_json(self) -> dict[str, str | list[str]]:
        """Every value a string, as Triton's are."""
        told: dict[str, str | list[str]] = {
            "trace_level": list(self.levels),
            "trace_rate": str(self.rate),
            "trace_count": str(self.count),
        }
        if self.telemetry is not None:
            return told | {"trace_mode": "opentelemetry"} | self.telemetry.as_json()
        return told | {
            "log_frequency": str(self.log_frequency),
            "trace_file": self.file,
            "trace_mode": "triton",
        }


@dataclass(frozen=True, slots=True)
class SageMakerOptions:
    """The routes that Amazon SageMaker calls, on a port of their own."""

    is_allowed: bool = False
    address: str = "127.0.0.1"
    port: int = 8080
    ping_mode: str = "ready"
    """What /ping tells: "live" or "ready"."""
    default_model: str = ""
    """Whom /invocations goes to; empty: the only model."""
    inference_type: str = "infer"
    """What /invocations is: "infer", "generate" or "generate_stream"."""


@dataclass(frozen=True, slots=True)
class VertexOptions:
    """The routes that Vertex AI calls, on a port of their own."""

    is_allowed: bool = False
    address: str = "127.0.0.1"
    port: int = 8080
    predict_route: str = ""
    health_route: str = ""
    default_model: str = ""
    """Whom predictions go to; empty: the only model."""


@dataclass(frozen=True, slots=True)
class FrontendOptions:
    """Where the core listens. Port 0 takes a free one."""

    allow_http: bool = True
    http_address: str = "127.0.0.1"
    http_port: int = 8000
    http_reuse_port: bool = False
    """Other servers of this machine may listen on the same port (SO_REUSEPORT)."""
    http_max_input_size: int = 64 * 1024 * 1024
    """Bytes of JSON, and of one JSON tensor; binary bodies are bounded by `http_max_body_size`."""
    http_max_body_size: int = 2 * 1024 * 1024 * 1024
    http_header_forward_pattern: str = ""
    http_restricted: tuple[Restriction, ...] = ()
    allow_openai: bool = True
    """Serve /v1/... as OpenAI does, on the HTTP port."""
    openai_port: int | None = None
    """Serve them on a port of their own as well, at the address of HTTP."""
    openai_default_max_tokens: int = 16
    """Of requests that name no number."""
    sagemaker: SageMakerOptions = SageMakerOptions()
    vertex: VertexOptions = VertexOptions()
    allow_client_shm: bool = False
    """Callers on this machine may register shared memory for tensors to be read and written in."""
    trace: TraceSettings = field(default_factory=TraceSettings)
    allow_grpc: bool = True
    grpc_address: str = "127.0.0.1"
    grpc_port: int = 8001
    grpc: GrpcOptions = field(default_factory=GrpcOptions)
    allow_metrics: bool = True
    metrics_address: str = "127.0.0.1"
    metrics_port: int = 8002
    allow_gpu_metrics: bool = True
    allow_cpu_metrics: bool = True
    metrics_interval_ms: float = 2000
    """How old figures of devices and machine may be."""
