"""Opens sessions of ONNX Runtime, and never lets one run elsewhere than it was asked to.

The only file that imports onnxruntime, and only when a model needs it. Load threads enter.
Behaviour after spec ORT-01..11, ORT-17.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.backends.model_signature import ModelSignature, ModelTensor
from serving.backends.onnxruntime.options import SHRINKAGE, SessionSettings, global_threads
from serving.backends.onnxruntime.signature import datatype_of
from serving.backends.runtimes import require
from serving.config.signature import read_onnx_signature
from serving.errors import ModelLoadError, UnavailableError
from serving.native_code import check_whole

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
INSTALL = "pip install onnxruntime"
_WITH_GPU = "uninstall the package onnxruntime, then pip install 'conch[gpu]'"
_INSTALL = {
    CUDA: _WITH_GPU,
    TENSORRT: _WITH_GPU,
    OPENVINO: "uninstall the package onnxruntime, then pip install onnxruntime-openvino",
}
_LONGEST_CAUSE = 300
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE_PLACE = re.compile(
    r"\S+\.(?:h|cc|cpp|cu|cuh):\d+ "
    r"(?:(?:[\w:*&<>]+ ){0,3}\S+::\S+\([^)]*\)(?: const)?"
    r"|(?:void|bool|int|\w*Status) \S+\([^)]*\)|\w+) ?(?:\[with [^\]]*\] ?)?"
    r"|\S*<lambda\(\)> ?"
)
"""`/onnxruntime_src/.../element_wise_ops.h:563 void onnxruntime::Init(ptrdiff_t, ptrdiff_t) `, or
`element_wise_ops.cc:703 Compute `"""


def runtime() -> Any:
    """The module. Raises: UnavailableError with the command that brings it, or mends it."""
    module = require("onnxruntime", backend="onnxruntime", install=INSTALL)
    if not hasattr(module, "InferenceSession"):
        raise UnavailableError(
            "the onnxruntime backend cannot be used, its package is there but empty, as it is when "
            "one of two packages that share the folder was uninstalled: "
            "pip install --force-reinstall --no-deps onnxruntime"
        )
    return module


def share_threads(backend_config: Mapping[str, str]) -> None:
    """One thread pool for all sessions of the process, where the backend config wants it (ORT-11).

    Raises: InvalidArgumentError for a bad value, ModelLoadError where sessions exist already.
    """
    counts = global_threads(backend_config)
    if counts is None:
        return
    try:
        runtime().set_global_thread_pool_sizes(*counts)
    except Exception as error:
        raise ModelLoadError(
            f"onnxruntime cannot have a global thread pool now ({cause(error)}): start the server "
            "anew with this backend config"
        ) from error


def open_session(path: Path, settings: SessionSettings, providers: list[Any]) -> Any:
    """Raises: ModelLoadError naming the file and the cause, short."""
    ort = runtime()
    options = ort.SessionOptions()
    # Its errors are raised too: printed besides, each caller's mistake would be lines of the log.
    options.log_severity_level = 4
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads
    options.use_per_session_threads = not settings.shares_threads
    mode = ort.ExecutionMode
    options.execution_mode = mode.ORT_PARALLEL if settings.is_parallel else mode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = settings.use_mem_arena
    options.enable_mem_pattern = settings.use_mem_pattern
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, settings.graph_level)
    for key, value in settings.session_entries.items():
        options.add_session_config_entry(key, value)
    names = [item if isinstance(item, str) else item[0] for item in providers]
    for library in settings.custom_op_libraries:
        check_whole(library)
    try:
        for library in settings.custom_op_libraries:
            options.register_custom_ops_library(str(library))
        session = ort.InferenceSession(str(path), options, providers=providers, enable_fallback=0)
    except Exception as error:
        text = re.sub(rf"Load model from {re.escape(str(path))} (?:failed:)?", "", str(error))
        told = cause(text.replace(f"{path.parent.parent}/", ""))
        raise ModelLoadError(
            f"onnxruntime cannot load {path.parent.name}/{path.name}: {told}"
        ) from error
    _check_providers(path, names, session.get_providers())
    return session


def _check_providers(path: Path, wanted: list[str], found: list[str]) -> None:
    """A driver library that is missing makes ONNX Runtime take the CPU and say nothing."""
    absent = [name for name in wanted if name not in found]
    if absent or found[0] != wanted[0]:
        raise ModelLoadError(
            f"{path.parent.name}/{path.name}: onnxruntime could not use "
            f"{', '.join(absent) or wanted[0]} and fell back to {found[0]}: check the driver and "
            "its libraries, or use KIND_CPU"
        )


def providers_of(settings: SessionSettings, device: int) -> list[Any]:
    """Provider list for a GPU, or for the CPU where `device` is -1. Raises: ModelLoadError."""
    wanted = settings.accelerators
    if device >= 0:
        _require_provider(CUDA, "an instance group asks for KIND_GPU")
        found: list[Any] = [(CUDA, {**wanted.cuda, "device_id": str(device)}), CPU]
        if wanted.tensorrt is not None:
            _require_provider(TENSORRT, "the config asks for the accelerator 'tensorrt'")
            found.insert(0, (TENSORRT, {**wanted.tensorrt, "device_id": str(device)}))
        return found
    if wanted.openvino is not None:
        _require_provider(OPENVINO, "the config asks for the accelerator 'openvino'")
        return [(OPENVINO, dict(wanted.openvino)), CPU]
    return [CPU]


def _require_provider(name: str, why: str) -> None:
    available = runtime().get_available_providers()
    if name not in available:
        raise ModelLoadError(
            f"{why}, but the installed onnxruntime has no {name} (it has {', '.join(available)}): "
            f"{_INSTALL[name]}"
        )


def run_options(settings: SessionSettings, device: int, named: int) -> Any:
    """For the session of GPU `device`, which the config calls `named`, or of the CPU for -1."""
    entries = dict(settings.run_entries)
    wanted = entries.pop(SHRINKAGE, "").split(";")
    # Of an arena that the session does not have, ONNX Runtime would refuse each run.
    arenas = ["cpu:0"] if "cpu:0" in wanted and settings.use_mem_arena else []
    if device >= 0 and f"gpu:{named}" in wanted:
        arenas.append(f"gpu:{device}")
    if arenas:
        entries[SHRINKAGE] = ";".join(arenas)
    if not entries:
        return None
    options = runtime().RunOptions()
    for key, value in entries.items():
        options.add_run_config_entry(key, value)
    return options


def signature_of(session: Any, path: Path) -> ModelSignature:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    # ONNX Runtime shows scalars and tensors of unknown rank alike; the file tells them apart.
    unknown: frozenset[str] = frozenset()
    if any(not item.shape for item in (*inputs, *outputs)):
        file = read_onnx_signature(path)
        tensors = (*file.inputs, *file.outputs)
        unknown = frozenset(item.name for item in tensors if not item.is_rank_known)
    return ModelSignature(
        tuple(_tensor(item, unknown) for item in inputs),
        tuple(_tensor(item, unknown) for item in outputs),
        tuple(_tensor(item, unknown) for item in session.get_overridable_initializers()),
    )


def _tensor(item: Any, unknown_ranks: frozenset[str]) -> ModelTensor:
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in item.shape)
    is_rank_known = bool(shape) or item.name not in unknown_ranks
    return ModelTensor(item.name, datatype_of(item.type), shape, is_rank_known, item.type)


def cause(error: Exception | str) -> str:
    """The runtime's text in short, without its codes and the places in its sources."""
    text = _CODE.sub("", str(error))  # it may quote an error of its own
    place = _SOURCE_PLACE.search(text)
    if place is not None:
        _, _, told = text[place.end() :].rpartition(" was false. ")
        text = text[: place.start()] + (told or text[place.end() :])
    return _SOURCE_PLACE.sub("", text).strip()[:_LONGEST_CAUSE]
