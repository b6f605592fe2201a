"""Which statistics are kept of a model: what its kind and the server want. Pure.

Source: spec HTTP-073, MET-011..013, CFG-023.
"""

from __future__ import annotations

from serving.config.decode import ModelSpec
from serving.latencies import FIRST_RESPONSE, FIRST_RESPONSE_BOUNDS_MS, Histogram, Summaries
from serving.metrics_config import MetricsConfig
from serving.response_stats import ResponseStats
from serving.stats import ModelStats


def stats_of(spec: ModelSpec, config: MetricsConfig) -> ModelStats:
    """The statistics of a new version, with what its kind and the server want to be kept."""
    bounds_ms = spec.histogram_buckets.get(FIRST_RESPONSE) or FIRST_RESPONSE_BOUNDS_MS
    return ModelStats(
        responses=ResponseStats() if spec.is_decoupled else None,
        first_response=Histogram(bounds_ms) if config.histogram_latencies else None,
        summaries=Summaries() if config.summary_latencies else None,
    )
