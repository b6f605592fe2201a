"""Optimization profiles: which shapes an engine takes, and which profile is best for a batch.

Pure; load threads and instances enter. Source: spec CFG-066, TRT-04.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.errors import InvalidArgumentError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """Shapes of one input, or values of a shape tensor, with the batch axis where there is one."""

    low: Shape
    best: Shape
    high: Shape

    def admits(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.low) and all(
            low <= dim <= high for low, dim, high in zip(self.low, shape, self.high, strict=True)
        )

    def distance(self, shape: Sequence[int]) -> int:
        """From the shape that the engine was tuned for."""
        return sum(abs(dim - best) for dim, best in zip(shape, self.best, strict=True))

    def __str__(self) -> str:
        return _range_text(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Profile:
    number: int
    shapes: Mapping[str, ShapeRange]
    """Of every input."""
    values: Mapping[str, ShapeRange]
    """Of the inputs that are shape tensors: what they may hold."""

    def max_batch(self, names: Iterable[str]) -> int:
        """The largest first dimension that all of these inputs take; 0 where one has none."""
        highs = [self.shapes[name].high for name in names if name in self.shapes]
        return min((high[0] if high else 0 for high in highs), default=0)

    def admits(self, shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> bool:
        return self._misfit(shapes, values) is None

    def distance(self, shapes: Mapping[str, Shape]) -> int:
        return sum(
            self.shapes[name].distance(shape)
            for name, shape in shapes.items()
            if name in self.shapes
        )

    def _misfit(self, shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> str | None:
        """What this profile does not take, in words; None where it takes all."""
        for name, shape in shapes.items():
            wanted = self.shapes.get(name)
            if wanted is not None and not wanted.admits(shape):
                return f"input '{name}' has shape {list(shape)}, taken is {wanted}"
        for name, held in values.items():
            wanted = self.values.get(name)
            if wanted is not None and not wanted.admits(held):
                return f"input '{name}' holds {list(held)}, taken is {wanted}"
        return None

    def refusal(self, shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> str:
        return f"profile {self.number}: {self._misfit(shapes, values)}"


def choose(
    profiles: Sequence[Profile],
    shapes: Mapping[str, Shape],
    values: Mapping[str, Shape],
    model: str,
) -> Profile:
    """The profile that takes the shapes and was tuned for the nearest ones; the first of equals.

    Raises: InvalidArgumentError, the caller's mistake, where none takes them.
    """
    if len(profiles) == 1 and profiles[0].admits(shapes, values):
        return profiles[0]
    fitting = [profile for profile in profiles if profile.admits(shapes, values)]
    if not fitting:
        reasons = "; ".join(profile.refusal(shapes, values) for profile in profiles)
        raise InvalidArgumentError(
            f"the engine of model '{model}' takes no batch of these shapes: {reasons}"
        )
    return min(fitting, key=lambda profile: profile.distance(shapes))


def _range_text(low: Shape, high: Shape) -> str:
    dims = (
        str(least) if least == most else f"{least} to {most}"
        for least, most in zip(low, high, strict=True)
    )
    return f"[{', '.join(dims)}]"
