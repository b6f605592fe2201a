"""What the server lends to every model: time, threads, limits, and the way to other models.

Made by ModelServer, handed on by the loader. Loop thread only.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from serving.clock import Clock
from serving.config.decode import ModelSpec
from serving.request import InferenceRequest


class ServedModel(Protocol):
    """What one model may know of another: `serving.model.Model` as seen from below."""

    name: str
    version: int
    spec: ModelSpec

    @property
    def is_ready(self) -> bool: ...

    def labels_of(self, output_name: str) -> list[str]: ...

    def infer(self, request: InferenceRequest) -> None: ...


class ModelCalls(Protocol):
    """How a model calls other models: ensembles do, and Python models (BLS)."""

    def infer(self, request: InferenceRequest) -> None:
        """Every outcome is one final response through `request.on_response`."""

    def model(self, name: str, version: int = -1) -> ServedModel:
        """A READY one. Raises NotFoundError or UnavailableError."""

    def is_model_ready(self, name: str, version: int = -1) -> bool:
        """Raises NotFoundError for a model or version that is not known at all."""

    async def load_model(self, name: str) -> None: ...

    async def unload_model(self, name: str, *, unload_dependents: bool = False) -> None: ...


@dataclass(slots=True)
class ModelServices:
    clock: Clock
    executor: Executor | None = None
    """For what blocks: loading, reading, unloading."""
    gpu_count: int = 0
    drain_timeout_s: float = 600.0
    """How long a model waits for its requests before it abandons them."""
    calls: ModelCalls | None = None
    """None where a model stands alone (benchmarks, tools)."""
