"""A counter of a model's own, shown among the metrics with the labels `model` and `version`.

Made with the model; any thread adds. Where the model runs in the server the page of the metrics
takes what has come; a process of an instance's own sends it. Source: spec SMP-01, PB-051.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from serving.backends.base import ModelContext
from serving.backends.child_services import MetricChange
from serving.custom_metrics import MetricKind


class Counter:
    def __init__(self, context: ModelContext, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.labels: Mapping[str, str] = {
            "model": context.spec.name,
            "version": str(context.version),
        }
        self._lock = threading.Lock()
        self._added = 0.0
        self._child = context.child
        if self._child is not None:
            self._child.declare_family(name, description, MetricKind.COUNTER)
            self._number = self._child.new_metric(name, self.labels, ())

    def __repr__(self) -> str:
        return f"<Counter {self.name} {self.labels}>"

    def add(self, amount: float) -> None:
        if self._child is not None:
            self._child.send_metrics([MetricChange(self._number, added=amount)], ())
            return
        with self._lock:
            self._added += amount

    def take(self) -> float:
        """What was added since the last call."""
        with self._lock:
            added, self._added = self._added, 0.0
        return added
