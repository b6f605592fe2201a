"""The parameters of PyTorch models: read, checked, with their defaults.

Pure; any thread. Source: spec PT-15..21, PT-25.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.config.mend import quoted
from serving.config.report import Report
from serving.config.suggest import nearest
from serving.errors import InvalidArgumentError

PYTHON_RUNTIME = "model.py"
"""`runtime` of a module in Python."""

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_CACHE_CLEANING = ("ENABLE_CACHE_CLEANING", "CACHE_CLEANING_ENABLED")
"""The second is how the stored code of PT2 archives spells it (PT-19)."""
_COMPILE_KINDS: Mapping[str, type] = {
    "fullgraph": bool,
    "dynamic": bool,
    "backend": str,
    "mode": str,
    "options": dict,
    "disable": bool,
}
_COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
COMPILE = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
_MOST_THREADS = 1024
"""A process that cannot have so many is ended by OpenMP, with all that it serves."""
_OF_MODULES = frozenset(
    {
        *("DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE", "DISABLE_CUDNN"),
        *("ENABLE_WEIGHT_SHARING", "ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING"),
        *("ENABLE_TENSOR_FUSER", "INTER_OP_THREAD_COUNT", "INTRA_OP_THREAD_COUNT"),
        *_CACHE_CLEANING,
    }
)
_OF_PYTHON = frozenset({"NUM_THREADS", "NUM_INTEROP_THREADS", COMPILE})


def check_torch_parameters(report: Report) -> None:
    """What would fail the load, and slips of known names, which nobody would read."""
    given = {name: item.string_value for name, item in report.config.parameters.items()}
    is_python = report.config.runtime == PYTHON_RUNTIME
    try:
        PythonOptions.of(given) if is_python else TorchOptions.of(given)
    except InvalidArgumentError as error:
        report.error("parameters", error.message, code="PT-15")
    known = _OF_PYTHON if is_python else _OF_MODULES
    for name in sorted(given.keys() - _OF_PYTHON - _OF_MODULES):
        meant = nearest(name, known)
        if meant and meant not in given:
            report.warning(
                f"parameters[{quoted(name)}]",
                f"the pytorch backend does not know the parameter '{name}'",
                f"did you mean '{meant}'?",
                code="PT-15",
            )


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """What a TorchScript module or a PT2 archive is run with."""

    optimized_execution: bool = True
    inference_mode: bool = True
    cudnn: bool = True
    weight_sharing: bool = False
    cache_cleaning: bool = False
    jit_executor: bool = True
    jit_profiling: bool = True
    tensor_fuser: bool = True
    inter_op_threads: int = 0
    """0: as many as there are cores."""
    intra_op_threads: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> TorchOptions:
        """Raises: InvalidArgumentError naming parameter, value, and what is allowed."""
        cleaning = [_flag(parameters, name, default=False) for name in _CACHE_CLEANING]
        return cls(
            optimized_execution=not _flag(parameters, "DISABLE_OPTIMIZED_EXECUTION", default=False),
            inference_mode=_flag(parameters, "INFERENCE_MODE", default=True),
            cudnn=not _flag(parameters, "DISABLE_CUDNN", default=False),
            weight_sharing=_flag(parameters, "ENABLE_WEIGHT_SHARING", default=False),
            cache_cleaning=any(cleaning),
            jit_executor=_flag(parameters, "ENABLE_JIT_EXECUTOR", default=True),
            jit_profiling=_flag(parameters, "ENABLE_JIT_PROFILING", default=True),
            tensor_fuser=_flag(parameters, "ENABLE_TENSOR_FUSER", default=True),
            inter_op_threads=_count(parameters, "INTER_OP_THREAD_COUNT", 0),
            intra_op_threads=_count(parameters, "INTRA_OP_THREAD_COUNT", 0),
        )


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """What a module of the Python runtime is run with."""

    threads: int = 1
    interop_threads: int = 1
    compile: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of torch.compile."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> PythonOptions:
        """Raises: InvalidArgumentError naming parameter, value, and what is allowed."""
        return cls(
            threads=_count(parameters, "NUM_THREADS", 1, least=1),
            interop_threads=_count(parameters, "NUM_INTEROP_THREADS", 1, least=1),
            compile=_compile(parameters.get(COMPILE, "")),
        )


def _flag(parameters: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = parameters.get(name)
    if text is None:
        return default
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise InvalidArgumentError(f"parameter '{name}' is '{text}': it must be true or false")
    return value


def _count(parameters: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= _MOST_THREADS:
        alternative = ", 0 for the number of cores" if least == 0 else ""
        raise InvalidArgumentError(
            f"parameter '{name}' is '{text}': it must be a whole number of threads, {least} to "
            f"{_MOST_THREADS}{alternative}"
        )
    return int(text)


def _compile(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"parameter '{COMPILE}' is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InvalidArgumentError(
            f"parameter '{COMPILE}' must be a JSON object, e.g. {{\"disable\": true}}"
        )
    known = ", ".join(_COMPILE_KINDS)
    for key, value in given.items():
        if key == "model":
            raise InvalidArgumentError(
                f"'model' is not an optional parameter for torch.compile: remove it from {COMPILE}"
            )
        kind = _COMPILE_KINDS.get(key)
        if kind is None:
            raise InvalidArgumentError(
                f"parameter '{COMPILE}' has the unknown key '{key}'; known are {known}"
            )
        if not isinstance(value, kind) and not (value is None and kind is not bool):
            raise InvalidArgumentError(
                f"parameter '{COMPILE}': '{key}' is {json.dumps(value)}: it must be a "
                f"{_KIND_NAMES[kind]}"
            )
    mode = given.get("mode")
    if mode is not None and mode not in _COMPILE_MODES:
        raise InvalidArgumentError(
            f"parameter '{COMPILE}': 'mode' is '{mode}': it must be one of "
            f"{', '.join(_COMPILE_MODES)}"
        )
    return given


_KIND_NAMES = {bool: "boolean, true or false", str: "string", dict: "JSON object"}
