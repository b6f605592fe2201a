"""What a config asks of TensorFlow: read, checked, independent of the runtime itself.

Names and meanings after the parameters and command line options of Triton's TensorFlow backend
(spec TF-01). Load threads enter; reads the small file of init operations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.backends.base import ModelContext
from serving.config.signature_tensorflow import DEFAULT_SIGNATURE
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError

DEFAULT_TAG = "serve"
_MOST = 1024
_TRUE = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class TensorFlowSettings:
    intra_op_threads: int = 0
    """0: TensorFlow decides."""
    inter_op_threads: int = 0
    has_own_threads: bool = False
    """Each session has threads of its own; else all of the process share them."""
    tag: str = DEFAULT_TAG
    signature: str = DEFAULT_SIGNATURE
    init_operations: tuple[str, ...] = ()
    """Run once in each session, before its first request."""
    instances_per_session: int = 1
    allows_soft_placement: bool = True
    """Operations that have no code for the GPU may run on the CPU."""
    gpu_memory_fraction: float = 0.0
    """Of a GPU's memory; 0: as much as the models come to need."""


def read_settings(context: ModelContext) -> TensorFlowSettings:
    """Raises: InvalidArgumentError naming parameter and value."""
    values, server = context.spec.parameters, context.backend_config
    return TensorFlowSettings(
        intra_op_threads=_count(values, "TF_NUM_INTRA_THREADS", 0),
        inter_op_threads=_count(values, "TF_NUM_INTER_THREADS", 0),
        has_own_threads=_flag(values, "TF_USE_PER_SESSION_THREADS", default=False),
        tag=values.get("TF_GRAPH_TAG") or DEFAULT_TAG,
        signature=values.get("TF_SIGNATURE_DEF") or DEFAULT_SIGNATURE,
        init_operations=_init_operations(context),
        instances_per_session=max(1, _count(values, "MAX_SESSION_SHARE_COUNT", 1)),
        allows_soft_placement=_flag(server, "allow-soft-placement", default=True),
        gpu_memory_fraction=_fraction(server, "gpu-memory-fraction"),
    )


def _init_operations(context: ModelContext) -> tuple[str, ...]:
    name = context.spec.parameters.get("TF_INIT_OPS_FILE", "")
    if not name:
        return ()
    places = [context.version_directory / name, context.model_directory / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None or escapes(name):
        raise InvalidArgumentError(
            f"parameter 'TF_INIT_OPS_FILE' is '{name}': there is no such file in version folder "
            f"{context.version} or in the folder of model '{context.spec.name}'"
        )
    try:
        content: Any = json.loads(found.read_bytes())
    except ValueError as error:
        raise InvalidArgumentError(f"{name} is no JSON: {error}") from error
    operations = content.get("init_ops") if isinstance(content, dict) else None
    if not isinstance(operations, list) or not all(isinstance(item, str) for item in operations):
        raise InvalidArgumentError(
            f'{name} must hold the names of operations: {{"init_ops": ["init"]}}'
        )
    return tuple(operations)


def _count(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default)).strip()
    # More threads than the machine can start end the process.
    if not text.isdecimal() or int(text) > _MOST:
        raise _bad(values, name, f"a whole number, 0 to {_MOST}")
    return int(text)


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = _TRUE.get(values.get(name, str(int(default))).strip().casefold())
    if value is None:
        raise _bad(values, name, "true or false")
    return value


def _fraction(values: Mapping[str, str], name: str) -> float:
    try:
        value = float(values.get(name, "0"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise _bad(values, name, "a number from 0 to 1")
    return value


def _bad(values: Mapping[str, str], name: str, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"parameter '{name}' is '{values[name]}': it must be {wanted}")
