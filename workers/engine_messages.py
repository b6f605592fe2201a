"""What console and workers say to each other about engine builds, as typed JSON.

An order is checked where it is made (`order_problem`); a worker reports how far it
is. Pure; times are seconds since the epoch. Source: spec TRT-01, TRT-04.
"""

from __future__ import annotations

import re

import msgspec

from serving.config.shape_ranges import range_problem

PRECISIONS = ("model", "fp32", "fp16", "bf16", "int8")
LIBRARIES = ("tensorrt", "tensorrt_rtx")
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""That TensorRT-RTX builds for without such a GPU; the builder knows for sure."""
_BUILD_ID = re.compile(r"[0-9a-f]{32}")
OPEN_STATES = frozenset({"queued", "running"})

Shape = list[int]
Range = tuple[Shape, Shape, Shape]
"""Smallest, best, largest."""


class EngineOrder(msgspec.Struct, frozen=True):
    """Build an engine out of the ONNX file of a model version."""

    build_id: str
    model: str
    version: int
    target: str
    """The model that gets the engine as its next version; a new one, or a TensorRT model."""
    library: str = ""
    """tensorrt, tensorrt_rtx, or empty: what is installed, TensorRT first."""
    precision: str = "model"
    profiles: list[dict[str, Range]] = []
    workspace_bytes: int = 0
    """0: as the builder likes."""
    capabilities: list[str] = []
    """Compute capabilities; empty: the GPU of the worker."""
    is_version_compatible: bool = False


class EngineProgress(msgspec.Struct, frozen=True):
    """How far a build is; kept for a day under its id."""

    build_id: str
    worker_id: str
    model: str
    target: str
    state: str
    """queued, running, succeeded, failed or cancelled."""
    at: float
    phase: str = ""
    """In the builder's words."""
    fraction: float = 0.0
    """0 to 1; it never falls."""
    error: str = ""
    version: int = 0
    """Of the target, when it is done."""
    engine_bytes: int = 0
    builder: str = ""
    """As "TensorRT-RTX 1.7.1.116", when it is done."""

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


def order_problem(order: EngineOrder) -> str:
    """Why the order cannot be carried out, in one sentence; empty where nothing speaks against it.

    The model's own inputs are checked by the builder.
    """
    if not _BUILD_ID.fullmatch(order.build_id):
        return f"'{order.build_id}' cannot be the id of a build"
    if order.precision not in PRECISIONS:
        return f"precision is '{order.precision}': it must be one of {', '.join(PRECISIONS)}"
    if order.library and order.library not in LIBRARIES:
        return f"library is '{order.library}': it must be one of {', '.join(LIBRARIES)}"
    for text in order.capabilities:
        major, dot, minor = text.partition(".")
        if not (dot and major.isdecimal() and minor.isdecimal() and text.isascii()):
            return f"compute capability '{text}' is none: write it as 8.9"
    if not 0 <= order.workspace_bytes < 1 << 62:
        return "the workspace must be 0 bytes or more"
    for number, ranges in enumerate(order.profiles):
        for name, (low, best, high) in ranges.items():
            problem = range_problem(low, best, high)
            if problem:
                return f"profile {number}, input '{name}': {problem}"
    return ""
