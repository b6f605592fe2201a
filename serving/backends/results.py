"""What a model gave back, beside what its config says of outputs. Pure; any thread.

Bytes of one type that go out under the name of another are other numbers for the caller, and no
frontend looks at them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from serving.config.decode import TensorSpec
from serving.errors import BackendError

_TEXT_KINDS = "OSU"
_ARRAYS = (np.ndarray, np.generic)


def check_results(
    model: str, declared: Mapping[str, TensorSpec], results: object, names: Iterable[str]
) -> None:
    """Of one run, which was to give the outputs `names`; `declared` are all that the model has.

    Raises: BackendError.
    """
    if not isinstance(results, Mapping):
        raise BackendError(
            f"model '{model}' returned {type(results).__name__}: it must return a dictionary of "
            "arrays by the names of outputs"
        )
    for name in names:
        if name not in results:
            raise BackendError(f"model '{model}' did not return output '{name}'")
        check_type(model, declared, name, results[name])


def check_type(model: str, declared: Mapping[str, TensorSpec], name: str, array: Any) -> None:
    """Raises: BackendError for an output that is none of the config's, or of another type."""
    item = declared.get(name)
    if item is None:
        raise BackendError(
            f"model '{model}' returned output '{name}', which is none of the config's: "
            f"{', '.join(declared)}"
        )
    found = getattr(array, "dtype", None)
    if isinstance(array, _ARRAYS):
        # The first is what holds nearly always, and costs nothing.
        if found is item.datatype.dtype or found == item.datatype.dtype:
            return
        if item.datatype.is_bytes and array.dtype.kind in _TEXT_KINDS:
            return
    raise BackendError(
        f"model '{model}' returned output '{name}' as {found or type(array).__name__}, but the "
        f"config says {item.datatype.config_name}: return an array of {item.datatype.dtype}"
    )
