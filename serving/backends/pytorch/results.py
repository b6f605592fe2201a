"""What a module returned, as the outputs of the config: Tensor, List[str], or a tuple of those.

The thread of an instance. Source: spec PT-06, PT-08.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.backends.pytorch import runtime
from serving.backends.pytorch.runtime import Array, torch
from serving.config.decode import ModelSpec
from serving.errors import (
    BackendError,
    ErrorCode,
    FailureReason,
    ServingError,
    error_from_code,
)


class Results:
    """Reads the results of one model; `places` says which result is which output."""

    def __init__(self, spec: ModelSpec, places: Mapping[str, int]) -> None:
        self._spec = spec
        self._outputs = spec.backend_outputs
        self._places = places

    def listed(self, returned: object) -> list[Any]:
        """The results in order. Raises: BackendError for kinds that are none (PT-06)."""
        is_tuple = isinstance(returned, tuple)
        items = list(returned) if isinstance(returned, tuple) else [returned]
        for index, item in enumerate(items):
            if isinstance(item, torch().Tensor) or _is_text(item):
                continue
            what = f"output at index {index} " if is_tuple else "output "
            raise BackendError(
                f"PyTorch execute failure: model '{self._spec.name}': {what}must be of type "
                "Tensor, List[str] or Tuple containing one of these two types, received "
                f"{_kind_of(item)}"
            )
        return items

    def arrays(
        self, values: Sequence[Any], names: Sequence[str], rows: int | None
    ) -> dict[str, Array]:
        """The wanted outputs; `rows` is the size of the batch, None for a model without.

        Raises: ServingError where an output is none of the results, or of another data type.
        """
        return {name: self._array(values, name, rows) for name in names}

    def _array(self, values: Sequence[Any], name: str, rows: int | None) -> Array:
        place = self._places[name]
        if place >= len(values):
            raise self._refused(
                f"The output {name} in the model configuration refers to an output index which "
                f"doesn't exist. This model has {len(values)} outputs"
            )
        value = values[place]
        datatype = self._outputs[name].datatype
        is_text = isinstance(value, list)
        provided = "BYTES" if is_text else runtime.datatype_of(value)
        if provided != datatype.name:
            shown = value.dtype if provided is None else _config_name(provided)
            raise self._refused(
                f"configuration expects datatype {datatype.config_name} for output '{name}', "
                f"model provides {shown}"
            )
        if not is_text:
            return runtime.to_array(value)
        return self._shaped(runtime.from_strings(value), name, rows)

    def _shaped(self, flat: Array, name: str, rows: int | None) -> Array:
        """A list has no dimensions: it gets those of the config."""
        item = self._outputs[name]
        dims = item.dims if item.reshape is None else item.reshape
        if rows is None:
            return flat.reshape(()) if not dims and flat.size == 1 else flat
        if not dims or not rows or flat.size % rows:
            return flat  # of no batch: refused with its shape
        return flat.reshape(rows, flat.size // rows)

    def _refused(self, text: str) -> ServingError:
        """The config contradicts the model, which shows in each request; as Triton answers it."""
        return error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)


def _config_name(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def _is_text(item: object) -> bool:
    return isinstance(item, list) and all(isinstance(part, str) for part in item)


def _kind_of(item: object) -> str:
    if isinstance(item, list):
        return f"List[{_kind_of(item[0])}]"
    if isinstance(item, dict):
        return "Dict"
    return type(item).__name__
