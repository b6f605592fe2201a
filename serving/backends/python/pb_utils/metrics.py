"""`pb_utils.MetricFamily` and its metrics (PB-051): counted here, told to the server with the next
answers, so that a metric costs no message of its own.

Any thread. What other threads count while the model is idle goes out a little later.
"""

from __future__ import annotations

import bisect
import enum
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NoReturn

from serving.backends.child_services import MetricChange
from serving.backends.python.pb_utils import process
from serving.backends.python.pb_utils.errors import TritonModelException
from serving.errors import ServingError

_FLUSH_AFTER_S = 0.05


class MetricKind(enum.IntEnum):
    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


_lock = threading.Lock()
"""Guards `_changes` and `_timer`."""
_changes: dict[int, MetricChange] = {}
_gone: deque[int] = deque()
_timer: threading.Timer | None = None


def flush() -> None:
    """Tell the server what has been counted."""
    global _changes, _timer
    if not _changes and not _gone:
        return
    with _lock:
        changes, _changes = list(_changes.values()), {}
        gone = [_gone.popleft() for _ in range(len(_gone))]
        _timer = None
    process.child().send_metrics(changes, gone)


class MetricFamily:
    """One name in the metrics. The same name is one family, in whichever model it is made."""

    MetricKind = MetricKind
    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: int) -> None:
        """Raises: TritonModelException for a bad name, or where it exists as another kind."""
        self._name = name
        self._kind = MetricKind(kind)
        try:
            process.child().declare_family(name, description, int(kind))
        except ServingError as error:
            raise TritonModelException(
                f"Failed to create metric family: {error.message}"
            ) from error

    def Metric(  # noqa: N802 - Triton's name
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """The series with these labels; `buckets`: upper bounds, for a histogram."""
        for key, value in (labels or {}).items():
            if not all(isinstance(text, str) for text in (key, value)):
                raise TypeError(f"label {key!r}: names and values of labels must be str")
        bounds = [float(bound) for bound in buckets or ()]
        try:
            number = process.child().new_metric(self._name, labels or {}, bounds)
        except ServingError as error:
            raise TritonModelException(f"Failed to create metric: {error.message}") from error
        return Metric(self, number, bounds)


class Metric:
    """Made by `MetricFamily.Metric` only. It is removed with its last reference."""

    def __init__(self, family: MetricFamily, number: int, bounds: Sequence[float]) -> None:
        self._family = family
        self._number = number
        self._bounds = bounds

    def __del__(self) -> None:
        _gone.append(self._number)

    def increment(self, value: float) -> None:
        """Of a counter by 0 or more, of a gauge by anything."""
        kind = self._family._kind
        if kind is MetricKind.HISTOGRAM:
            self._refuse("increment", "does not support Increment")
        if kind is MetricKind.COUNTER and value < 0:
            self._refuse(
                "increment", "can only be incremented monotonically by non-negative values."
            )
        with self._changing() as change:
            change.added += value

    def set(self, value: float) -> None:
        """Of a gauge."""
        if self._family._kind is not MetricKind.GAUGE:
            self._refuse("set", "does not support Set")
        with self._changing() as change:
            change.value, change.added = float(value), 0.0

    def observe(self, value: float) -> None:
        """For a histogram."""
        if self._family._kind is not MetricKind.HISTOGRAM:
            self._refuse("observe", "does not support Observe")
        with self._changing() as change:
            change.added += value
            change.counts = change.counts or [0] * (len(self._bounds) + 1)
            change.counts[bisect.bisect_left(self._bounds, value)] += 1

    def value(self) -> float:
        """Of a counter or gauge, what all who share it have made of it."""
        if self._family._kind is MetricKind.HISTOGRAM:
            self._refuse("get", "does not support Value")
        flush()
        try:
            return process.child().metric_value(self._number)
        except ServingError as error:
            raise TritonModelException(f"Failed to get metric value: {error.message}") from error

    def _changing(self) -> _Change:
        return _Change(self._number)

    def _refuse(self, what: str, reason: str) -> NoReturn:
        kind = self._family._kind.name
        raise TritonModelException(
            f"Failed to {what} metric value: TRITONSERVER_METRIC_KIND_{kind} {reason}"
        )


class _Change:
    """Holds the lock around one change; sees to it that it is told."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> MetricChange:
        _lock.acquire()
        change = _changes.get(self._number)
        if change is None:
            change = _changes[self._number] = MetricChange(self._number)
        return change

    def __exit__(self, *_: object) -> None:
        global _timer
        # What the main thread counts goes with the answers of its batch.
        if _timer is None and threading.current_thread() is not threading.main_thread():
            _timer = threading.Timer(_FLUSH_AFTER_S, flush)
            _timer.daemon = True
            _timer.start()
        _lock.release()
