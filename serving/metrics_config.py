"""What --metrics-config asks for: which latency families the metrics page has.

Pure. Source: spec MET-010..013, CLI-080.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Setting = tuple[str, bool | tuple[float, ...]]

_SWITCHES = ("counter_latencies", "histogram_latencies", "summary_latencies")
_QUANTILES = "summary_quantiles"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    counter_latencies: bool = True
    """The cumulative durations, and what the response cache did for each model."""
    histogram_latencies: bool = False
    """Time to the first response."""
    summary_latencies: bool = False
    """Quantiles of each stage over the last minute."""
    summary_quantiles: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99, 0.999)
    """From 0 to 1."""


def parse_setting(text: str) -> Setting:
    """`<key>=<value>`. Raises: ValueError."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals:
        raise ValueError("expects <key>=<value>, as in summary_latencies=true")
    if key == _QUANTILES:
        return key, _quantiles(value)
    if key not in _SWITCHES:
        raise ValueError(f"unknown key '{key}'; known are {', '.join((*_SWITCHES, _QUANTILES))}")
    if value.lower() not in _BOOLEANS:
        raise ValueError(f"{key} expects true, false, 1 or 0")
    return key, _BOOLEANS[value.lower()]


def combined(settings: Iterable[Setting]) -> MetricsConfig:
    """The last one of a key holds."""
    return MetricsConfig(**dict(settings))  # type: ignore[arg-type]


def _quantiles(text: str) -> tuple[float, ...]:
    """`<quantile>:<error>,...` as tritonserver writes it; the error has no effect here."""
    found: list[float] = []
    for item in text.split(","):
        quantile, _, error = item.partition(":")
        try:
            numbers = float(quantile), float(error)
        except ValueError:
            numbers = (-1.0, -1.0)
        if not all(0 <= number <= 1 for number in numbers):
            raise ValueError(
                f"{_QUANTILES}: '{item}' is not of the form <quantile>:<error>, both from 0 to 1, "
                "as in 0.5:0.05,0.99:0.001"
            )
        found.append(numbers[0])
    return tuple(sorted(set(found)))
