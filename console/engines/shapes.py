"""Profiles of a build as people write them: `8x3x224x224`, prefilled from the model's signature.

Pure but for `inputs_of`, which reads the head of an ONNX file. Any thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.config.protobuf import pb
from serving.config.signature import TensorSignature, read_onnx_signature

OPEN = "?"
BEST_ROWS, MOST_ROWS = 8, 16
"""Of a batch, where the config does not say how many rows there are at most."""
_MOST_VALUES = 8
_DIM = re.compile(r"[0-9]{1,9}")


class ShapeError(ValueError):
    """A text that is no shape; the message says why."""


@dataclass(frozen=True, slots=True)
class ProfileInput:
    """One input that a profile may speak of, with the shapes to begin with as text."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    low: str = ""
    best: str = ""
    high: str = ""
    is_optional: bool = False
    """It may hold shapes: then its values need a range, otherwise nothing."""

    @property
    def shape_text(self) -> str:
        return text_of(self.shape) or "scalar"


def inputs_of(path: Path, config: pb.ModelConfig | None) -> list[ProfileInput]:
    """The inputs of any shape, then those that may hold shapes. Raises: InvalidArgumentError."""
    signature = read_onnx_signature(path)
    rows = 0 if config is None else config.max_batch_size
    known = {} if config is None else {item.name: tuple(item.dims) for item in config.input}
    dynamic = [item for item in signature.inputs if -1 in item.shape]
    found = [_dynamic(item, rows, known.get(item.name)) for item in dynamic]
    return found + [_values(item) for item in signature.inputs if _may_hold_shapes(item)]


def _dynamic(item: TensorSignature, rows: int, dims: tuple[int, ...] | None) -> ProfileInput:
    shape = list(item.shape)
    if dims is not None and rows and len(dims) == len(shape) - 1:
        shape[1:] = [have if have > 0 else want for have, want in zip(shape[1:], dims, strict=True)]
    elif dims is not None and len(dims) == len(shape):
        shape = [have if have > 0 else want for have, want in zip(shape, dims, strict=True)]
    most = rows or MOST_ROWS
    best = min(BEST_ROWS, most)
    first = (1, best, most) if item.shape[0] == -1 else (shape[0],) * 3
    low, best_shape, high = (_joined([start, *shape[1:]]) for start in first)
    return ProfileInput(item.name, item.datatype.name, item.shape, low, best_shape, high)


def _may_hold_shapes(item: TensorSignature) -> bool:
    size = item.shape[0] if len(item.shape) == 1 else 1 if not item.shape else 0
    is_whole = item.datatype.name in ("INT32", "INT64")
    return is_whole and item.is_rank_known and 0 < size <= _MOST_VALUES


def _values(item: TensorSignature) -> ProfileInput:
    return ProfileInput(item.name, item.datatype.name, item.shape, is_optional=True)


def _joined(dims: list[int]) -> str:
    return "x".join(OPEN if dim < 0 else str(dim) for dim in dims)


def text_of(shape: tuple[int, ...] | list[int]) -> str:
    """-1 is any."""
    return _joined(list(shape))


def parse_shape(text: str) -> list[int]:
    """`8x3x224x224`, `8, 3, 224, 224` or `8 3 224 224`. Raises: ShapeError."""
    parts = text.lower().replace("×", "x").replace(",", " ").replace("x", " ").split()
    if OPEN in parts:
        raise ShapeError(f"Write a number in place of each {OPEN}.")
    for part in parts:
        if not _DIM.fullmatch(part):
            raise ShapeError(f"'{part[:20]}' is no dimension: write numbers, as in 8x3x224x224.")
    return [int(part) for part in parts]


def prefilled(inputs: list[ProfileInput]) -> list[dict[str, list[list[int]]]] | None:
    """One profile of the shapes to begin with; None where some of them are open."""
    profile = {}
    for item in inputs:
        if item.is_optional:
            continue
        try:
            profile[item.name] = [parse_shape(text) for text in (item.low, item.best, item.high)]
        except ShapeError:
            return None
    return [profile] if profile else []


def parse_profile(text: str) -> Mapping[str, list[list[int]]]:
    """`X=1x4,8x4,16x4;Y=...` as on a command line: smallest, best, largest. Raises: ShapeError."""
    profile = {}
    for part in filter(None, (item.strip() for item in text.split(";"))):
        name, equals, shapes = part.partition("=")
        ranges = shapes.split(",")
        if not equals or len(ranges) != 3:
            raise ShapeError(
                f"'{part}' is no profile: write input=smallest,best,largest, as in X=1x4,8x4,16x4."
            )
        profile[name.strip()] = [parse_shape(item) for item in ranges]
    return profile
