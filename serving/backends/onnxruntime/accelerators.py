"""`optimization.execution_accelerators` of a config as options of ONNX Runtime's providers.

Keys and values after Triton's ONNX Runtime backend (spec ORT-08..10). Pure; load threads enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError

Convert = Callable[[str], str | None]
"""The value as the provider wants it, or None for one that it cannot have."""


@dataclass(frozen=True, slots=True)
class Accelerators:
    cuda: Mapping[str, str] = field(default_factory=dict)
    tensorrt: Mapping[str, str] | None = None
    """None: not asked for."""
    openvino: Mapping[str, str] | None = None


def read_accelerators(optimization: pb.ModelOptimizationPolicy) -> Accelerators:
    """Raises: InvalidArgumentError for an unknown accelerator, key or value."""
    accelerators = optimization.execution_accelerators
    cuda: dict[str, str] = {}
    tensorrt: dict[str, str] | None = None
    openvino: dict[str, str] | None = None
    for item in accelerators.gpu_execution_accelerator:
        if item.name == "cuda":
            cuda.update(item.parameters)
        elif item.name == "tensorrt":
            tensorrt = tensorrt_options(item.parameters)
        else:
            raise _unknown(item.name, "gpu_execution_accelerator", "cuda, tensorrt")
    for item in accelerators.cpu_execution_accelerator:
        if item.name != "openvino":
            raise _unknown(item.name, "cpu_execution_accelerator", "openvino")
        openvino = dict(item.parameters)
    return Accelerators(cuda, tensorrt, openvino)


def _unknown(name: str, where: str, known: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unknown execution accelerator '{name}' in {where}; known are {known}"
    )


def flag(text: str) -> str | None:
    return {"1": "1", "true": "1", "0": "0", "false": "0"}.get(text.lower())


def _count(low: int = 0, high: int = 2**63 - 1) -> Convert:
    def convert(text: str) -> str | None:
        digits = text.removeprefix("-") if low < 0 else text
        is_number = digits.isascii() and digits.isdigit() and len(text) < 20
        return str(int(text)) if is_number and low <= int(text) <= high else None

    return convert


def _text(text: str) -> str | None:
    return text or None


_FLAG = "1, 0, true or false"
_PRECISIONS: Mapping[str, Mapping[str, str]] = {
    "FP32": {},
    "FP16": {"trt_fp16_enable": "1"},
    "BF16": {"trt_bf16_enable": "1"},
    "INT8": {"trt_int8_enable": "1"},
}
_RENAMED = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
TENSORRT_KEYS: Mapping[str, tuple[Convert, str]] = {
    "max_workspace_size_bytes": (_count(), "a number of bytes"),
    "int8_calibration_table_name": (_text, "the name of a file"),
    **dict.fromkeys(
        (
            "int8_use_native_calibration_table",
            "trt_dla_enable",
            "trt_engine_cache_enable",
            "trt_dump_subgraphs",
            "trt_force_sequential_engine_build",
            "trt_context_memory_sharing_enable",
            "trt_layer_norm_fp32_fallback",
            "trt_timing_cache_enable",
            "trt_force_timing_cache",
            "trt_detailed_build_log",
            "trt_build_heuristics_enable",
            "trt_sparsity_enable",
            "trt_cuda_graph_enable",
            "trt_dump_ep_context_model",
        ),
        (flag, _FLAG),
    ),
    **dict.fromkeys(
        (
            "trt_engine_cache_path",
            "trt_engine_cache_prefix",
            "trt_timing_cache_path",
            "trt_tactic_sources",
            "trt_extra_plugin_lib_paths",
            "trt_profile_min_shapes",
            "trt_profile_max_shapes",
            "trt_profile_opt_shapes",
            "trt_ep_context_file_path",
        ),
        (_text, "a text"),
    ),
    "trt_max_partition_iterations": (_count(1), "a whole number of 1 or more"),
    "trt_min_subgraph_size": (_count(1), "a whole number of 1 or more"),
    "trt_dla_core": (_count(), "the number of a DLA core"),
    "trt_builder_optimization_level": (_count(0, 5), "a whole number from 0 to 5"),
    "trt_auxiliary_streams": (_count(-1), "a whole number, -1 for TensorRT's own choice"),
    "trt_ep_context_embed_mode": (_count(0, 1), "0 or 1"),
}
"""What a config may say besides precision_mode -> its check, and what a good value is."""


def tensorrt_options(parameters: Mapping[str, str]) -> dict[str, str]:
    """Options of TensorrtExecutionProvider. Raises: InvalidArgumentError naming key and value."""
    options: dict[str, str] = {}
    for key, text in parameters.items():
        if key == "precision_mode":
            if text not in _PRECISIONS:
                raise _bad(key, text, f"one of {', '.join(_PRECISIONS)}")
            options.update(_PRECISIONS[text])
            continue
        if key not in TENSORRT_KEYS:
            raise InvalidArgumentError(
                f"unknown parameter '{key}' of the execution accelerator 'tensorrt'; known are "
                f"{', '.join(sorted((*TENSORRT_KEYS, 'precision_mode')))}"
            )
        convert, wanted = TENSORRT_KEYS[key]
        value = convert(text)
        if value is None:
            raise _bad(key, text, wanted)
        options[_RENAMED.get(key, key)] = value
    profiles = [f"trt_profile_{kind}_shapes" in options for kind in ("min", "max", "opt")]
    if any(profiles) and not all(profiles):
        raise InvalidArgumentError(
            "the execution accelerator 'tensorrt' needs trt_profile_min_shapes, "
            "trt_profile_max_shapes and trt_profile_opt_shapes, or none of them"
        )
    return options


def _bad(key: str, text: str, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"parameter '{key}' of the execution accelerator 'tensorrt' is '{text}': it must be "
        f"{wanted}"
    )
