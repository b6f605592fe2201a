"""Metrics that models make themselves (PB-051): families, their series, and who has a part in them.

The same name and labels are one series, whichever instance or model counts; it goes with the last
owner that has declared it. Loop thread only. Owners are opaque.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serving.errors import InvalidArgumentError, NotFoundError

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
Labels = tuple[tuple[str, str], ...]


class Counted(Protocol):
    """A counter that is asked for what it has counted."""

    name: str
    description: str
    labels: Mapping[str, str]

    def take(self) -> float:
        """Since the last call. Any thread may add meanwhile."""


_OF_ENGINES = "nv_trt_llm_"
"""What models of TensorRT-LLM publish, whichever server they run in (MET-060)."""


class MetricKind(enum.IntEnum):
    """Numbers as in Triton's TRITONSERVER_MetricKind."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


@dataclass(slots=True, eq=False)
class _Series:
    labels: Labels
    bounds: Sequence[float]
    value: float = 0.0
    """Of a histogram: the sum of what was observed."""
    counts: list[int] = field(default_factory=list)
    owners: set[tuple[Hashable, int]] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Family:
    name: str
    description: str
    kind: MetricKind
    series: dict[Labels, _Series] = field(default_factory=dict)
    owners: set[Hashable] = field(default_factory=set)


class CustomMetrics:
    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._series: dict[tuple[Hashable, int], tuple[_Family, _Series]] = {}
        """By owner and the owner's number for it."""
        self._watched: dict[Hashable, Sequence[Counted]] = {}

    def __repr__(self) -> str:
        return f"<CustomMetrics families={len(self._families)} series={len(self._series)}>"

    def declare(self, owner: Hashable, name: str, description: str, kind: int) -> None:
        """Raises: InvalidArgumentError for a bad name, or a family of another kind."""
        if not _NAME.match(name):
            raise InvalidArgumentError(
                f"'{name}' is no name for a metric family: letters, digits, '_' and ':' make one, "
                "and a digit does not come first"
            )
        if name.startswith(("nv_", "conch_")) and not name.startswith(_OF_ENGINES):
            raise InvalidArgumentError(
                f"metric family '{name}': names that start with nv_ or conch_ are the server's own"
            )
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(name, description, MetricKind(kind))
        if family.kind != kind:
            raise InvalidArgumentError(
                f"metric family '{name}' exists already as a {family.kind.name.lower()}: take "
                f"another name for the {MetricKind(kind).name.lower()}"
            )
        family.owners.add(owner)

    def watch(self, owner: Hashable, counters: Sequence[Counted]) -> None:
        """Show these until the owner leaves. Raises: InvalidArgumentError."""
        for number, counter in enumerate(counters):
            self.declare(owner, counter.name, counter.description, MetricKind.COUNTER)
            self.add(owner, number, counter.name, counter.labels)
        if counters:
            self._watched[owner] = counters

    def _look(self) -> None:
        for owner, counters in self._watched.items():
            for number, counter in enumerate(counters):
                self.update(owner, number, value=None, added=counter.take(), counts=())

    def add(
        self,
        owner: Hashable,
        number: int,
        family_name: str,
        labels: Mapping[str, str],
        bounds: Sequence[float] = (),
    ) -> None:
        """`number`: what the owner calls the series from now on. Raises: InvalidArgumentError."""
        family = self._families.get(family_name)
        if family is None:
            raise NotFoundError(f"metric family '{family_name}' does not exist")
        for label in labels:
            if not _LABEL.match(label):
                raise InvalidArgumentError(
                    f"'{label}' is no name for a label of metric family '{family_name}'"
                )
        if family.kind is MetricKind.HISTOGRAM:
            _check_bounds(family_name, bounds)
        elif bounds:
            raise InvalidArgumentError(
                f"metric family '{family_name}' is a {family.kind.name.lower()}, which has no "
                "buckets"
            )
        key = tuple(sorted(labels.items()))
        series = family.series.get(key)
        if series is None:
            series = family.series[key] = _Series(key, list(bounds), counts=[0] * (len(bounds) + 1))
        elif list(series.bounds) != list(bounds):
            raise InvalidArgumentError(
                f"a metric of family '{family_name}' with these labels exists with other buckets"
            )
        series.owners.add((owner, number))
        self._series[owner, number] = family, series

    def update(
        self,
        owner: Hashable,
        number: int,
        *,
        value: float | None,
        added: float,
        counts: Sequence[int],
    ) -> None:
        """First set to `value`, where there is one, then add. A number that is gone is ignored."""
        found = self._series.get((owner, number))
        if found is None:
            return
        series = found[1]
        if value is not None:
            series.value = value
        series.value += added
        for index, count in enumerate(counts[: len(series.counts)]):
            series.counts[index] += count

    def value(self, owner: Hashable, number: int) -> float:
        found = self._series.get((owner, number))
        if found is None:
            raise NotFoundError("the metric has been removed")
        return found[1].value

    def of_model(self, family: str, model: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of each series of a family that says it is of this model."""
        found = self._families.get(family)
        for series in () if found is None else found.series.values():
            labels = dict(series.labels)
            if labels.get("model") == model:
                yield labels, series.value

    def drop(self, owner: Hashable, number: int) -> None:
        found = self._series.pop((owner, number), None)
        if found is None:
            return
        family, series = found
        series.owners.discard((owner, number))
        if not series.owners:
            del family.series[series.labels]

    def leave(self, owner: Hashable) -> None:
        """The owner has ended: what nobody else has a part in goes."""
        self._look()
        self._watched.pop(owner, None)
        for key in [key for key in self._series if key[0] == owner]:
            self.drop(*key)
        for family in list(self._families.values()):
            family.owners.discard(owner)
            if not family.owners:
                del self._families[family.name]

    def render(self) -> str:
        """Prometheus text."""
        self._look()
        return "".join(_text(family) for family in self._families.values() if family.series)


def _check_bounds(family: str, bounds: Sequence[float]) -> None:
    if not bounds:
        raise InvalidArgumentError(f"metric family '{family}' is a histogram: it needs buckets")
    if any(after <= before for before, after in zip(bounds, bounds[1:], strict=False)):
        raise InvalidArgumentError(
            f"metric family '{family}': the buckets must grow from one to the next"
        )


def _text(family: _Family) -> str:
    kind = family.kind.name.lower()
    lines = [
        f"# HELP {family.name} {_escape(family.description, quotes=False)}",
        f"# TYPE {family.name} {kind}",
    ]
    for series in family.series.values():
        labels = [f'{key}="{_escape(value)}"' for key, value in series.labels]
        if family.kind is MetricKind.HISTOGRAM:
            lines += _histogram_lines(family.name, labels, series)
        else:
            lines.append(f"{family.name}{_braces(labels)} {_number(series.value)}")
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: list[str], series: _Series) -> list[str]:
    seen = 0
    lines = []
    for bound, count in zip([*series.bounds, float("inf")], series.counts, strict=True):
        seen += count
        told = "+Inf" if bound == float("inf") else _number(bound)
        braces = _braces([*labels, f'le="{told}"'])
        lines.append(f"{name}_bucket{braces} {seen}")
    lines.append(f"{name}_sum{_braces(labels)} {_number(series.value)}")
    lines.append(f"{name}_count{_braces(labels)} {seen}")
    return lines


def _braces(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _escape(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
