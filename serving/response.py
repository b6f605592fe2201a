"""What goes back to a caller: output tensors, or an error, and whether more will follow.

A response is immutable once delivered. Arrays may be views into a batch's output.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serving.datatypes import DataType
from serving.errors import ServingError

ParameterValue = str | int | bool | float


@dataclass(slots=True)
class OutputTensor:
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    array: NDArray[np.generic]
    """Shaped like `shape`; object array of bytes for BYTES."""


@dataclass(slots=True)
class InferenceResponse:
    """One response. A model that is not decoupled gives exactly one for each request, final."""

    model_name: str
    model_version: int
    id: str = ""
    outputs: list[OutputTensor] = field(default_factory=list)
    parameters: dict[str, ParameterValue] = field(default_factory=dict)
    error: ServingError | None = None
    is_final: bool = True
    is_null: bool = False
    """True for a final marker without content, as a decoupled model may send."""
