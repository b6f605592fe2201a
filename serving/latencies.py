"""How long requests take, in more detail than sums: only where --metrics-config asks for it.

`Histogram` has the buckets of the config; `Summary` has log-spaced ones of the last minute, out of
which quantiles are read: a request costs a bisect for each, and nothing is ever sorted. A quantile
is exact to the width of its bucket, a factor of 1.19 (2^1/4), and interpolated inside.
Loop thread only. Source: spec MET-011..013, CFG-023.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from serving.stats import LATENCY_BOUNDS_US, percentiles

FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
FIRST_RESPONSE_BOUNDS_MS: Sequence[float] = (100.0, 500.0, 2000.0, 5000.0)
WINDOW_S = 60
_AGES = 5
_AGE_NS = WINDOW_S * 1_000_000_000 // _AGES


class Histogram:
    """Durations by the buckets `bounds_ms`, each up to and with its bound."""

    __slots__ = ("bounds_ms", "counts", "total_ns")

    def __init__(self, bounds_ms: Sequence[float]) -> None:
        self.bounds_ms = bounds_ms
        self.counts = [0] * (len(bounds_ms) + 1)
        """The last one is of those beyond every bound."""
        self.total_ns = 0

    def add(self, duration_ns: int) -> None:
        self.counts[bisect_left(self.bounds_ms, duration_ns / 1e6)] += 1
        self.total_ns += duration_ns


class Summary:
    """Durations of one stage: count and sum since the load, buckets of the last minute."""

    __slots__ = ("_ages", "count", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self._ages: deque[list[int]] = deque(maxlen=_AGES)
        self.rotate()

    def add(self, duration_ns: int) -> None:
        self.count += 1
        self.total_ns += duration_ns
        self._ages[-1][bisect_left(LATENCY_BOUNDS_US, duration_ns // 1000)] += 1

    def rotate(self) -> None:
        """The oldest of the ages goes."""
        self._ages.append([0] * (len(LATENCY_BOUNDS_US) + 1))

    def quantiles_us(self, wanted: Sequence[float]) -> Sequence[float] | None:
        """None where there was nothing in the last minute."""
        buckets = [sum(column) for column in zip(*self._ages, strict=True)]
        return percentiles(buckets, [100 * item for item in wanted]) if any(buckets) else None


class Summaries:
    """Of one model version."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.request = Summary()
        self.queue = Summary()
        self.compute_input = Summary()
        self.compute_infer = Summary()
        self.compute_output = Summary()
        self.cache_hit = Summary()
        self.cache_miss = Summary()
        self._all = [item for item in vars(self).values() if isinstance(item, Summary)]
        self._now_ns = now_ns
        self._since_ns = now_ns()

    def record_success(
        self, total_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        self.refresh()
        self.request.add(total_ns)
        self.queue.add(queue_ns)
        self.compute_input.add(input_ns)
        self.compute_infer.add(infer_ns)
        self.compute_output.add(output_ns)

    def record_cache_hit(self, total_ns: int, queue_ns: int, lookup_ns: int) -> None:
        self.refresh()
        self.request.add(total_ns)
        self.queue.add(queue_ns)
        self.cache_hit.add(lookup_ns)

    def record_cache_miss(self, took_ns: int) -> None:
        self.refresh()
        self.cache_miss.add(took_ns)

    def refresh(self) -> None:
        """Let go of what is older than the window."""
        passed = (self._now_ns() - self._since_ns) // _AGE_NS
        if passed:
            self._since_ns += passed * _AGE_NS
            for item in self._all:
                for _ in range(min(passed, _AGES)):
                    item.rotate()
