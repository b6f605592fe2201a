"""Keeps the instances of a model to the attributes of its backend (spec BE-006).

Wraps a loaded model only where its instances must not be made, or must not execute, side by side.
Entered by the threads of the instances; locks keep the order.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from serving.backends.attributes import BackendAttributes, ExecutionPolicy
from serving.backends.base import ExecutionTimes, LoadedModel, ModelInstance, Placement
from serving.config.decode import InstanceKind
from serving.request import InferenceRequest


def governed(loaded: LoadedModel, attributes: BackendAttributes) -> LoadedModel:
    if attributes.execution_policy is ExecutionPolicy.DEVICE_BLOCKING:
        loaded = _OneExecutesOnADevice(loaded)
    return loaded if attributes.parallel_instance_loading else _OneIsMadeAtATime(loaded)


class _OneIsMadeAtATime(LoadedModel):
    def __init__(self, inner: LoadedModel) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.counters = inner.counters

    def create_instance(self, placement: Placement) -> ModelInstance:
        with self._lock:
            return self._inner.create_instance(placement)

    def unload(self) -> None:
        self._inner.unload()


class _OneExecutesOnADevice(LoadedModel):
    def __init__(self, inner: LoadedModel) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.counters = inner.counters
        self._turns: defaultdict[tuple[InstanceKind, int], threading.Lock]
        self._turns = defaultdict(threading.Lock)

    def create_instance(self, placement: Placement) -> ModelInstance:
        instance = self._inner.create_instance(placement)
        with self._lock:
            turn = self._turns[placement.kind, placement.device_id]
        return _InTurn(instance, turn)

    def unload(self) -> None:
        self._inner.unload()


class _InTurn(ModelInstance):
    def __init__(self, inner: ModelInstance, turn: threading.Lock) -> None:
        self._inner = inner
        self._turn = turn

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        with self._turn:
            self._inner.execute(requests, times)

    @property
    def has_ready_hook(self) -> bool:
        return self._inner.has_ready_hook

    def is_ready(self) -> bool:
        return self._inner.is_ready()

    def close(self) -> None:
        self._inner.close()
