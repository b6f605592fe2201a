"""`pb_utils.MetricFamily` (PB-051): can be named, but not yet made."""

from __future__ import annotations

import enum

from serving.backends.python.pb_utils.errors import unsupported


class MetricKind(enum.IntEnum):
    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class MetricFamily:
    MetricKind = MetricKind
    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, *_: object, **__: object) -> None:
        unsupported("a custom metric (MetricFamily)")


class Metric:
    """Made by `MetricFamily.Metric` only."""

    def __init__(self, *_: object, **__: object) -> None:
        unsupported("a custom metric (Metric)")
