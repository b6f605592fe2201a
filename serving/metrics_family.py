"""One metric family of the page: its head and its lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Family:
    """Lines of one metric family; none at all when it has no series."""

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self._head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self._lines: list[str] = []

    def add(self, labels: str, value: float, suffix: str = "") -> None:
        braces = f"{{{labels}}}" if labels else ""
        self._lines.append(f"{self.name}{suffix}{braces} {number(value)}\n")

    def add_histogram(
        self, labels: str, bounds: Sequence[float], counts: Sequence[int], total: float
    ) -> None:
        """`counts`: observations in each bucket, those beyond every bound last."""
        seen = 0
        for bound, count in zip(bounds, counts, strict=False):
            seen += count
            self.add(f'{labels},le="{bound:g}"', seen, "_bucket")
        self.add(f'{labels},le="+Inf"', sum(counts), "_bucket")
        self.add(labels, total, "_sum")
        self.add(labels, sum(counts), "_count")

    def __str__(self) -> str:
        return self._head + "".join(self._lines) if self._lines else ""


def escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "NaN" if math.isnan(value) else f"{value:.6f}"
