"""The families of the metrics page that tell how long requests take. Pure, as `serving.metrics`.

Which of them there are, --metrics-config says. Source: spec MET-010..013, MET-020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from serving.latencies import FIRST_RESPONSE, Summary
from serving.metrics_config import MetricsConfig
from serving.metrics_counters import ModelCounters
from serving.metrics_family import Family
from serving.stats import StatsSnapshot

Rows = Sequence[tuple[ModelCounters, str, StatsSnapshot]]
"""A model, its labels, its counters."""

_CACHED = " (includes cached requests)"
_COMPUTED = " (does not include cached requests)"
_STAGES = (
    ("request", "success", "inference request duration", _CACHED),
    ("queue", "queue", "inference queuing duration", _CACHED),
    ("compute_input", "compute_input", "compute input duration", _COMPUTED),
    ("compute_infer", "compute_infer", "compute inference duration", _COMPUTED),
    ("compute_output", "compute_output", "inference compute output duration", _COMPUTED),
)


def latency_families(rows: Rows, config: MetricsConfig) -> list[Family]:
    families = []
    if config.counter_latencies:
        families += [*_duration_families(rows), *_cached_families(rows)]
    if config.histogram_latencies:
        families.append(_first_response_family(rows))
    if config.summary_latencies:
        families += _summary_families(rows, config.summary_quantiles)
    return families


def _duration_families(rows: Rows) -> list[Family]:
    families = []
    for stage, field, text, scope in _STAGES:
        family = Family(
            f"nv_inference_{stage}_duration_us",
            "counter",
            f"Cumulative {text} in microseconds{scope}",
        )
        for _, labels, snapshot in rows:
            duration = getattr(snapshot, field).total_ns
            if stage == "request":
                duration += snapshot.fail.total_ns
            family.add(labels, duration // 1000)
        families.append(family)
    return families


def _cached_families(rows: Rows) -> list[Family]:
    hits = Family("nv_cache_num_hits_per_model", "counter", "Number of cache hits per model")
    misses = Family("nv_cache_num_misses_per_model", "counter", "Number of cache misses per model")
    hit_us = Family(
        "nv_cache_hit_duration_per_model",
        "counter",
        "Total cache hit duration per model, in microseconds",
    )
    miss_us = Family(
        "nv_cache_miss_duration_per_model",
        "counter",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
    )
    for model, labels, snapshot in rows:
        if model.is_cached:
            hits.add(labels, snapshot.cache_hit.count)
            misses.add(labels, snapshot.cache_miss.count)
            hit_us.add(labels, snapshot.cache_hit.total_ns // 1000)
            miss_us.add(labels, snapshot.cache_miss.total_ns // 1000)
    return [hits, misses, hit_us, miss_us]


def _first_response_family(rows: Rows) -> Family:
    family = Family(
        FIRST_RESPONSE, "histogram", "Duration from request to first response in milliseconds"
    )
    for model, labels, _ in rows:
        if (item := model.first_response) is not None:
            family.add_histogram(labels, item.bounds_ms, item.counts, item.total_ns / 1e6)
    return family


def _summary_families(rows: Rows, quantiles: Sequence[float]) -> list[Family]:
    families = []
    for stage, _, text, scope in _STAGES:
        family = Family(
            f"nv_inference_{stage}_summary_us",
            "summary",
            f"Summary of {text} in microseconds{scope}",
        )
        for model, labels, _ in rows:
            # Hits and misses of a cache are no one distribution: each has a summary of its own.
            if model.summaries is not None and not (stage == "request" and model.is_cached):
                model.summaries.refresh()
                _add_summary(family, labels, getattr(model.summaries, stage), quantiles)
        families.append(family)
    for event in ("hit", "miss"):
        family = Family(
            f"nv_cache_{event}_summary_per_model",
            "summary",
            f"Summary of cache {event} durations per model, in microseconds",
        )
        for model, labels, _ in rows:
            if model.summaries is not None and model.is_cached:
                _add_summary(family, labels, getattr(model.summaries, f"cache_{event}"), quantiles)
        families.append(family)
    return families


def _add_summary(family: Family, labels: str, item: Summary, quantiles: Sequence[float]) -> None:
    family.add(labels, item.count, "_count")
    family.add(labels, item.total_ns / 1000, "_sum")
    values = item.quantiles_us(quantiles) or [math.nan] * len(quantiles)
    for quantile, value in zip(quantiles, values, strict=True):
        family.add(f'{labels},quantile="{quantile:g}"', value)
