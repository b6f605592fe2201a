"""Stands in for the workers: same methods as `workers.client.WorkerClient`, state in lists."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from workers.engine_messages import EngineOrder, EngineProgress
from workers.messages import (
    DeviceSample,
    Event,
    ModelDescription,
    ModelSample,
    ModelVersionState,
    OperationResult,
    Sample,
    WorkerInfo,
)


@dataclass
class Call:
    """One command that the console sent to a worker."""

    action: str
    worker_id: str
    model: str
    operation_id: str
    arguments: dict[str, Any] = field(default_factory=dict)


class FakeWorkerClient:
    def __init__(self) -> None:
        self.infos: list[WorkerInfo] = []
        self.calls: list[Call] = []
        self.results: dict[str, OperationResult] = {}
        self.engines: dict[str, EngineProgress] = {}
        self.descriptions: dict[str, ModelDescription] = {}
        self.sample_list: list[Sample] = []
        self.event_list: list[Event] = []
        self.error: Exception | None = None
        """Raised by every read: the registry is away."""
        self.is_hanging = False
        self.entries: asyncio.Queue[tuple[str, Sample | Event]] = asyncio.Queue()
        self._ids = itertools.count(1)

    def _check(self) -> None:
        if self.error:
            raise self.error

    def workers(self) -> list[WorkerInfo]:
        self._check()
        return list(self.infos)

    def worker(self, worker_id: str) -> WorkerInfo | None:
        self._check()
        return next((info for info in self.infos if info.worker_id == worker_id), None)

    def forget(self, worker_id: str) -> None:
        self.infos = [info for info in self.infos if info.worker_id != worker_id]

    def load_model(
        self,
        worker_id: str,
        model: str,
        *,
        operation_id: str,
        versions: list[int] | None = None,
        config: str | None = None,
    ) -> None:
        arguments = {"versions": versions, "config": config}
        self.calls.append(Call("load", worker_id, model, operation_id, arguments))

    def unload_model(
        self,
        worker_id: str,
        model: str,
        *,
        operation_id: str,
        version: int | None = None,
        unload_dependents: bool = False,
    ) -> None:
        arguments = {"version": version, "unload_dependents": unload_dependents}
        self.calls.append(Call("unload", worker_id, model, operation_id, arguments))

    def operation_result(self, operation_id: str) -> OperationResult | None:
        self._check()
        return self.results.get(operation_id)

    def build_engine(self, worker_id: str, order: EngineOrder) -> None:
        self._check()
        arguments = {"order": order}
        self.calls.append(Call("build", worker_id, order.model, order.build_id, arguments))

    def cancel_engine(self, worker_id: str, build_id: str) -> None:
        self._check()
        self.calls.append(Call("cancel", worker_id, "", build_id))

    def engine_progress(self, build_id: str) -> EngineProgress | None:
        self._check()
        return self.engines.get(build_id)

    def describe_model(
        self, worker_id: str, model: str, *, timeout_s: float = 5.0
    ) -> ModelDescription:
        self._check()
        return self.descriptions[model]

    def samples(self, *, since: float, limit: int = 4000) -> list[Sample]:
        self._check()
        return [sample for sample in self.sample_list if sample.at >= since][-limit:]

    def events(self, *, since: float, limit: int = 500) -> list[Event]:
        self._check()
        return [event for event in self.event_list if event.at >= since][-limit:]

    async def follow(self, last_id: str = "$") -> AsyncIterator[tuple[str, Sample | Event]]:
        self._check()
        while True:
            yield await self.entries.get()

    def announce(self, message: Sample | Event) -> None:
        """Hands one entry to whoever follows the streams."""
        self.entries.put_nowait((f"{int(message.at * 1000)}-{next(self._ids)}", message))


def make_worker(worker_id: str = "gpu-1", **changes: Any) -> WorkerInfo:
    now = time.time()
    values: dict[str, Any] = {
        "worker_id": worker_id,
        "host": f"{worker_id}.example",
        "pid": 100,
        "version": "0.1.0",
        "state": "ready",
        "started_at": now - 3600,
        "last_seen": now,
        "http_url": "http://127.0.0.1:8000",
        "grpc_url": "127.0.0.1:8001",
        "metrics_url": "http://127.0.0.1:8002/metrics",
        "repositories": ["/models"],
    }
    return WorkerInfo(**(values | changes))


def make_model(name: str, version: str = "1", state: str = "READY", **changes: Any) -> Any:
    values: dict[str, Any] = {"backend": "onnxruntime", "instances": 1}
    return ModelVersionState(name=name, version=version, state=state, **(values | changes))


def make_device(index: int = 0, **changes: Any) -> DeviceSample:
    values: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "H200",
        "utilization": 0.71,
        "memory_used_bytes": 58_000_000_000,
        "memory_total_bytes": 141_000_000_000,
        "power_watts": 412.0,
        "temperature_celsius": 61.0,
    }
    return DeviceSample(**(values | changes))


def make_sample(
    worker_id: str = "gpu-1", at: float | None = None, models: Any = (), **changes: Any
) -> Sample:
    values: dict[str, Any] = {
        "worker_id": worker_id,
        "at": time.time() if at is None else at,
        "interval_s": 1.0,
        "cpu_percent": 40.0,
        "memory_bytes": 500_000_000,
        "models": list(models),
    }
    return Sample(**(values | changes))


def make_model_sample(name: str, version: str = "1", **changes: Any) -> ModelSample:
    values: dict[str, Any] = {
        "success_count": 100,
        "inference_count": 200,
        "execution_count": 50,
        "queued": 2,
        "p50_us": 2000.0,
        "p95_us": 5000.0,
        "p99_us": 9000.0,
        "batch_sizes": {"4": 50},
        "close_reasons": {"full": 40, "delay": 10},
        "latency_buckets": {"2000": 50, "5000": 45, "9000": 5},
    }
    return ModelSample(name=name, version=version, **(values | changes))
