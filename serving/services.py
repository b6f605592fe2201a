"""What the server lends to every model: time, threads, limits, and the way to other models.

Made by ModelServer, handed on by the loader. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

from serving.cache.base import ResponseCache
from serving.clock import Clock
from serving.config.decode import ModelSpec
from serving.config.protobuf import pb
from serving.custom_metrics import CustomMetrics
from serving.host_policies import HostPolicy
from serving.instance.base import InstanceHost
from serving.instance.turns import Turns
from serving.leases import Leases
from serving.metrics_config import MetricsConfig
from serving.rate_limiter import RateLimiter
from serving.request import InferenceRequest


class ServedEnsemble(Protocol):
    """The scheduler of an ensemble, as an outer ensemble sees it."""

    def bind(self, request: InferenceRequest) -> Any:
        """The Binding (`serving.scheduling.ensemble_parts`) of a request that starts now."""

    def awaits(
        self, request: InferenceRequest | None
    ) -> Iterable[tuple[ServedModel, InferenceRequest | None]]:
        """What the request still waits for: parts with what they have been asked, or with None
        where they will be. For None: all parts.
        """


class ServedModel(Protocol):
    """What one model may know of another: `serving.model.Model` as seen from below."""

    name: str
    version: int
    namespace: str
    spec: ModelSpec
    config: pb.ModelConfig
    leases: Leases

    @property
    def is_ready(self) -> bool: ...

    @property
    def unready_reason(self) -> str: ...

    @property
    def has_ready_hook(self) -> bool:
        """It has a say in whether it is ready."""

    def check_ready(self) -> Awaitable[bool]: ...

    @property
    def ensemble(self) -> ServedEnsemble | None:
        """None for any other model."""

    @property
    def hosts(self) -> Collection[InstanceHost]:
        """The instances that take requests; none for an ensemble."""

    @property
    def turns(self) -> Turns | None:
        """How its instances get their resources; None where no rate limiter is on."""

    def labels_of(self, output_name: str) -> list[str]: ...

    def infer(self, request: InferenceRequest) -> None: ...


class ModelCalls(Protocol):
    """How a model calls other models: ensembles do, and Python models (BLS)."""

    def model(self, name: str, version: int = -1, namespace: str = "") -> ServedModel:
        """A READY one; `namespace` says where to look first, with --model-namespacing.

        Raises: NotFoundError, UnavailableError, or InvalidArgumentError for an ambiguous name.
        """

    def sequence_holder(
        self, name: str, version: int, correlation_id: int | str
    ) -> ServedModel | None:
        """Who goes on with a sequence that has begun, be it a model that drains; None if none."""

    def ready_versions(self, name: str) -> list[int]:
        """Raises: InvalidArgumentError for a name that is ambiguous."""

    def is_model_ready(self, name: str, version: int = -1) -> bool:
        """Raises NotFoundError for a model or version that is not known at all."""

    async def load_model(
        self,
        name: str,
        *,
        config_override: str | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None: ...

    async def unload_model(self, name: str, *, unload_dependents: bool = False) -> None: ...


@dataclass(slots=True)
class ModelServices:
    clock: Clock
    executor: Executor | None = None
    """For what blocks: loading, reading, unloading."""
    gpu_count: int = 0
    drain_timeout_s: float = 600.0
    """How long a model waits for its requests before it abandons them."""
    warmup_timeout_s: float = 300.0
    """How long all samples on all instances may take."""
    host_policies: Mapping[str, HostPolicy] = field(default_factory=dict)
    cache: ResponseCache | None = None
    """For models whose config wants it."""
    limiter: RateLimiter | None = None
    """None: instances start whenever they are idle."""
    calls: ModelCalls | None = None
    """None where a model stands alone (benchmarks, tools)."""
    metrics: CustomMetrics = field(default_factory=CustomMetrics)
    """Those that models make themselves."""
    metrics_config: MetricsConfig = MetricsConfig()
    """Which latencies are kept besides."""
