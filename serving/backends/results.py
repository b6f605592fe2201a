"""What a model gave back, beside what its config says of outputs. Pure; any thread.

Bytes of one type that go out under the name of another are other numbers for the caller, and no
frontend looks at them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from serving.config.decode import ModelSpec
from serving.errors import BackendError

_TEXT_KINDS = "OSU"


def check_results(spec: ModelSpec, results: object, names: Iterable[str]) -> None:
    """Of one run, which was to give the outputs `names`. Raises: BackendError."""
    if not isinstance(results, Mapping):
        raise BackendError(
            f"model '{spec.name}' returned {type(results).__name__}: it must return a dictionary "
            "of arrays by the names of outputs"
        )
    for name in names:
        if name not in results:
            raise BackendError(f"model '{spec.name}' did not return output '{name}'")
        check_type(spec, name, results[name])


def check_type(spec: ModelSpec, name: str, array: Any) -> None:
    """Raises: BackendError for an output that is none of the config's, or of another type."""
    declared = spec.backend_outputs.get(name)
    if declared is None:
        raise BackendError(
            f"model '{spec.name}' returned output '{name}', which is none of the config's: "
            f"{', '.join(spec.backend_outputs)}"
        )
    datatype = declared.datatype
    found = getattr(array, "dtype", None)
    if found == datatype.dtype and isinstance(array, np.ndarray | np.generic):
        return
    if datatype.is_bytes and isinstance(found, np.dtype) and found.kind in _TEXT_KINDS:
        return
    raise BackendError(
        f"model '{spec.name}' returned output '{name}' as {found or type(array).__name__}, but the "
        f"config says {datatype.config_name}: return an array of {datatype.dtype}"
    )
