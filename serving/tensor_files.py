"""Tensors in files beside a model: raw, row-major, BYTES elements with their lengths. Load threads.

Source: spec SCH-063, SCH-132.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.datatypes import DataType, deserialize_bytes, element_count
from serving.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file that a config names, inside the folder where such files belong."""

    directory: Path
    field: str
    """Of the config, for messages."""
    name: str

    def read(self, tensor: str, datatype: DataType, dims: tuple[int, ...]) -> NDArray[np.generic]:
        """Raises: InvalidArgumentError where it leaves the folder or is too short; OSError."""
        folder, path = self.directory.name, self.directory / self.name
        if self.directory.resolve() not in path.resolve().parents:
            raise InvalidArgumentError(
                f"{self.field} '{self.name}' leaves the folder {folder}/ of the model"
            )
        raw = path.read_bytes()
        count = element_count(dims)
        if datatype.is_bytes:
            return deserialize_bytes(memoryview(raw), count, tensor).reshape(dims)
        needed = count * datatype.size
        if len(raw) < needed:
            raise InvalidArgumentError(
                f"file {folder}/{self.name} holds {len(raw)} bytes, but dims "
                f"{list(dims)} of {datatype.config_name} need {needed}"
            )
        return np.frombuffer(raw[:needed], dtype=datatype.dtype).reshape(dims)
