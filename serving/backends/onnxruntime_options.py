"""What a config asks of an ONNX Runtime session: read, checked, independent of the runtime itself.

Keys and meanings after Triton's ONNX Runtime backend (spec ORT-01..11). Load threads enter; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.backends.base import ModelContext
from serving.config.protobuf import pb
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError, UnsupportedError

_GRAPH_LEVELS = {-1: "ORT_ENABLE_BASIC", 0: "ORT_ENABLE_ALL", 1: "ORT_ENABLE_EXTENDED"}
_GRAPH_OFF = "ORT_DISABLE_ALL"
_CONV_SEARCH = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}
_ARENA_STRATEGY = {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}
_ACCELERATORS = ("cuda", "openvino")


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
    cuda_options: Mapping[str, str] = field(default_factory=dict)
    openvino_options: Mapping[str, str] | None = None
    """None: not asked for."""
    custom_op_libraries: tuple[Path, ...] = ()


def read_settings(context: ModelContext) -> SessionSettings:
    """Raises: InvalidArgumentError naming parameter and value, UnsupportedError."""
    parameters = _Parameters(context.spec.parameters)
    config = context.config
    if _flag(context.backend_config.get("enable-global-threadpool", "0")):
        raise UnsupportedError(
            "backend config 'enable-global-threadpool' is not supported: set "
            "intra_op_thread_count in the model's parameters instead"
        )
    cuda, openvino = _accelerators(config.optimization)
    run_entries = {}
    shrinkage = "memory.enable_memory_arena_shrinkage"
    if parameters.text(shrinkage):
        run_entries[shrinkage] = parameters.text(shrinkage)
    # Spinning threads burn whole cores between requests; others need those cores.
    session_entries = {
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
    }
    allocator = "session.use_device_allocator_for_initializers"
    if parameters.text(allocator):
        session_entries[allocator] = str(int(parameters.flag(allocator, default=False)))
    return SessionSettings(
        intra_op_threads=parameters.count("intra_op_thread_count"),
        inter_op_threads=parameters.count("inter_op_thread_count"),
        is_parallel=parameters.flag("execution_mode", default=False),
        use_mem_arena=parameters.flag("enable_mem_arena", default=True),
        use_mem_pattern=parameters.flag("enable_mem_pattern", default=True),
        graph_level=_graph_level(config.optimization.graph.level),
        session_entries=session_entries,
        run_entries=run_entries,
        cuda_options={**_cuda_parameters(parameters), **cuda},
        openvino_options=openvino,
        custom_op_libraries=_libraries(context),
    )


class _Parameters:
    """The model's `parameters`, with values checked when they are read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def count(self, name: str) -> int:
        text = self._values.get(name, "0")
        # -1 was a way to write "default" in older models.
        if not text.removeprefix("-").isdigit() or int(text) < -1:
            raise self._bad(name, "a whole number of threads, 0 for the default")
        return max(0, int(text))

    def flag(self, name: str, *, default: bool) -> bool:
        text = self._values.get(name, str(int(default)))
        value = _flag(text)
        if value is None:
            raise self._bad(name, "0 or 1")
        return value

    def choice(self, name: str, choices: Mapping[str, str]) -> str:
        value = choices.get(self._values[name])
        if value is None:
            raise self._bad(name, f"one of {', '.join(choices)}")
        return value

    def _bad(self, name: str, wanted: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"parameter '{name}' is '{self._values.get(name)}': it must be {wanted}"
        )


def _flag(text: str) -> bool | None:
    return {"0": False, "1": True, "false": False, "true": True}.get(text.lower())


def _graph_level(level: int) -> str:
    return _GRAPH_OFF if level >= 2 else _GRAPH_LEVELS[max(-1, level)]


def _cuda_parameters(parameters: _Parameters) -> dict[str, str]:
    """The older, flat way to set CUDA provider options."""
    options = {}
    if parameters.text("gpu_mem_limit"):
        options["gpu_mem_limit"] = parameters.text("gpu_mem_limit")
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


def _accelerators(
    optimization: pb.ModelOptimizationPolicy,
) -> tuple[dict[str, str], dict[str, str] | None]:
    accelerators = optimization.execution_accelerators
    cuda: dict[str, str] = {}
    openvino: dict[str, str] | None = None
    for item in accelerators.gpu_execution_accelerator:
        if item.name != "cuda":
            raise _unknown_accelerator(item.name, "gpu_execution_accelerator")
        cuda.update(item.parameters)
    for item in accelerators.cpu_execution_accelerator:
        if item.name != "openvino":
            raise _unknown_accelerator(item.name, "cpu_execution_accelerator")
        openvino = dict(item.parameters)
    return cuda, openvino


def _unknown_accelerator(name: str, field_name: str) -> InvalidArgumentError | UnsupportedError:
    if name == "tensorrt":
        return UnsupportedError(
            "execution accelerator 'tensorrt' is not supported by this version of Conch; use "
            "'cuda', or remove it"
        )
    return InvalidArgumentError(
        f"unknown execution accelerator '{name}' in {field_name}; known are "
        f"{', '.join(_ACCELERATORS)}"
    )


def _libraries(context: ModelContext) -> tuple[Path, ...]:
    libraries = []
    for name in context.config.model_operations.op_library_filename:
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
