"""What a config asks of an ONNX Runtime session: read, checked, independent of the runtime itself.

Keys and meanings after Triton's ONNX Runtime backend (spec ORT-01..11). Load threads enter; pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from serving.backends.base import ModelContext
from serving.backends.onnxruntime.accelerators import Accelerators, read_accelerators
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError
from serving.native_code import require_allowed

_GRAPH_LEVELS = {-1: "ORT_ENABLE_BASIC", 0: "ORT_ENABLE_ALL", 1: "ORT_ENABLE_EXTENDED"}
_GRAPH_OFF = "ORT_DISABLE_ALL"
_CONV_SEARCH = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}
_ARENA_STRATEGY = {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}
SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_ARENAS = re.compile(r"(?:cpu:0|gpu:\d+)(?:;(?:cpu:0|gpu:\d+))*")
_PLUGINS = "trt_extra_plugin_lib_paths"
_MOST_THREADS = 1024
"""A process that cannot have so many ends, or never finishes opening the session."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    intra_op_threads: int = 0
    """0: ONNX Runtime decides."""
    inter_op_threads: int = 0
    is_parallel: bool = False
    use_mem_arena: bool = True
    use_mem_pattern: bool = True
    graph_level: str = "ORT_ENABLE_ALL"
    """Name of a GraphOptimizationLevel."""
    session_entries: Mapping[str, str] = field(default_factory=dict)
    run_entries: Mapping[str, str] = field(default_factory=dict)
    accelerators: Accelerators = Accelerators()
    shares_threads: bool = False
    """With all other sessions of the process."""
    custom_op_libraries: tuple[Path, ...] = ()


def read_settings(context: ModelContext) -> SessionSettings:
    """Raises: InvalidArgumentError naming parameter and value."""
    parameters = _Parameters(context.spec.parameters)
    config = context.config
    accelerators = read_accelerators(config.optimization)
    if _PLUGINS in (accelerators.tensorrt or {}):
        require_allowed("onnxruntime", f"parameter '{_PLUGINS}'", context.backend_config)
    cuda = {**_cuda_parameters(parameters), **accelerators.cuda}
    shares_threads = global_threads(context.backend_config) is not None
    run_entries = {}
    if parameters.text(SHRINKAGE):
        run_entries[SHRINKAGE] = parameters.matching(SHRINKAGE, _ARENAS, "as in cpu:0;gpu:0")
    # Spinning threads burn whole cores between requests; others need those cores.
    session_entries = {
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
    }
    allocator = "session.use_device_allocator_for_initializers"
    if parameters.text(allocator):
        session_entries[allocator] = str(int(parameters.flag(allocator, default=False)))
    return SessionSettings(
        # The model's own numbers say nothing where all models share the threads.
        intra_op_threads=0 if shares_threads else parameters.count("intra_op_thread_count"),
        inter_op_threads=0 if shares_threads else parameters.count("inter_op_thread_count"),
        is_parallel=parameters.flag("execution_mode", default=False),
        use_mem_arena=parameters.flag("enable_mem_arena", default=True),
        use_mem_pattern=parameters.flag("enable_mem_pattern", default=True),
        graph_level=_graph_level(config.optimization.graph.level),
        session_entries=session_entries,
        run_entries=run_entries,
        accelerators=replace(accelerators, cuda=cuda),
        shares_threads=shares_threads,
        custom_op_libraries=_libraries(context),
    )


def global_threads(backend_config: Mapping[str, str]) -> tuple[int, int] | None:
    """Threads within and between operators of a pool that all sessions share; 0 is the default.

    None: each session has its own (ORT-11). Raises: InvalidArgumentError naming key and value.
    """
    key = "enable-global-threadpool"
    if key not in backend_config:
        return None
    wanted = _flag(backend_config[key])
    if wanted is None:
        raise InvalidArgumentError(
            f"backend config '{key}' is '{backend_config[key]}': it must be 0 or 1"
        )
    counts = _Parameters(backend_config, "backend config")
    names = ("intra_op_thread_count", "inter_op_thread_count")
    return (counts.count(names[0]), counts.count(names[1])) if wanted else None


class _Parameters:
    """Parameters of a model, or of the backend, with values checked when they are read."""

    def __init__(self, values: Mapping[str, str], what: str = "parameter") -> None:
        self._values = values
        self._what = what

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def count(self, name: str) -> int:
        text = self._values.get(name, "0")
        if text == "-1":  # a way to write "default" in older models
            return 0
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > _MOST_THREADS:
            wanted = f"a whole number of threads up to {_MOST_THREADS}, 0 for the default"
            raise self._bad(name, wanted)
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self._values.get(name, str(int(default)))
        value = _flag(text)
        if value is None:
            raise self._bad(name, "0 or 1")
        return value

    def matching(self, name: str, pattern: re.Pattern[str], wanted: str) -> str:
        text = self._values[name].lower()
        if not pattern.fullmatch(text):
            raise self._bad(name, wanted)
        return text

    def choice(self, name: str, choices: Mapping[str, str]) -> str:
        value = choices.get(self._values[name])
        if value is None:
            raise self._bad(name, f"one of {', '.join(choices)}")
        return value

    def _bad(self, name: str, wanted: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self._what} '{name}' is '{self._values.get(name)}': it must be {wanted}"
        )


def _flag(text: str) -> bool | None:
    return {"0": False, "1": True, "false": False, "true": True}.get(text.lower())


def _graph_level(level: int) -> str:
    return _GRAPH_OFF if level >= 2 else _GRAPH_LEVELS[max(-1, level)]


def _cuda_parameters(parameters: _Parameters) -> dict[str, str]:
    """The older, flat way to set CUDA provider options."""
    options = {}
    limit = "gpu_mem_limit"
    if parameters.text(limit):
        options[limit] = parameters.matching(limit, re.compile(r"\d{1,19}"), "a number of bytes")
    if parameters.text("cudnn_conv_algo_search"):
        search = parameters.choice("cudnn_conv_algo_search", _CONV_SEARCH)
        options["cudnn_conv_algo_search"] = search
    if parameters.text("arena_extend_strategy"):
        strategy = parameters.choice("arena_extend_strategy", _ARENA_STRATEGY)
        options["arena_extend_strategy"] = strategy
    if parameters.text("do_copy_in_default_stream"):
        copy = parameters.flag("do_copy_in_default_stream", default=True)
        options["do_copy_in_default_stream"] = str(int(copy))
    return options


def _libraries(context: ModelContext) -> tuple[Path, ...]:
    libraries = []
    names = context.config.model_operations.op_library_filename
    if names:
        require_allowed("onnxruntime", "op_library_filename", context.backend_config)
    for name in names:
        places = [context.version_directory / name, context.model_directory / name]
        found = next((place for place in places if place.is_file()), None)
        if escapes(name):
            raise InvalidArgumentError(
                f"op_library_filename '{name}' lies outside model directory: put the library into "
                f"the folder of model '{context.spec.name}'"
            )
        if found is None:
            raise InvalidArgumentError(
                f"op_library_filename '{name}' is neither in the version folder "
                f"{context.version} nor in the folder of model '{context.spec.name}'"
            )
        libraries.append(found)
    return tuple(libraries)
