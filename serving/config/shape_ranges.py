"""Whether three shapes are a range to build an engine for. Pure: forms, workers, the builder."""

from __future__ import annotations

from collections.abc import Sequence


def range_problem(low: Sequence[int], best: Sequence[int], high: Sequence[int]) -> str:
    """Why three shapes are no range; empty for one."""
    if not len(low) == len(best) == len(high):
        return f"the three shapes have {len(low)}, {len(best)} and {len(high)} dimensions"
    if any(not 0 <= dim < 1 << 31 for dim in (*low, *best, *high)):
        return "every dimension must be 0 to 2147483647"
    if not all(a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
        return "the shapes must not fall from smallest to largest in any dimension"
    return ""
