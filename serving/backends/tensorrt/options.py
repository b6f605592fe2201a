"""What a config and the command line ask of TensorRT: read, checked, independent of the runtime.

Keys and meanings after Triton's TensorRT backend (spec TRT-02, TRT-03, CFG-065, CFG-081, CFG-082).
Load threads enter; pure but for looking whether plugin files are there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.backends.attributes import ExecutionPolicy
from serving.backends.base import ModelContext, Placement
from serving.config.decode import InstanceGroup, ModelSpec
from serving.config.plan_header import PRODUCTS
from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError, UnsupportedError

ALLOCATION = "execution_context_allocation_strategy"
LIBRARY = "library"
_ALLOCATIONS = ("STATIC", "ON_PROFILE_CHANGE")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_PRIORITY = pb.ModelOptimizationPolicy.ModelPriority


class StreamPriority(enum.Enum):
    DEFAULT = "default"
    HIGH = "high"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    library: str = ""
    """tensorrt, tensorrt_rtx, or empty: as the engine file says."""
    library_asked_by: str = ""
    plugins: tuple[Path, ...] = ()
    policy: ExecutionPolicy = ExecutionPolicy.DEVICE_BLOCKING
    """Who hands work to a device: one thread at a time, or every instance when it likes."""
    is_version_compatible: bool = False
    allocation: str = "STATIC"
    """Name of an ExecutionContextAllocationStrategy."""
    priority: StreamPriority = StreamPriority.DEFAULT
    pins_inputs: bool = True
    pins_outputs: bool = True
    uses_graphs: bool = False
    waits_busily: bool = False
    has_output_stream: bool = False


def read_settings(context: ModelContext) -> EngineSettings:
    """Raises: InvalidArgumentError naming the setting, its value and what it may be."""
    backend_config, optimization = context.backend_config, context.config.optimization
    # Requests are gathered into one buffer in any case, so the answer changes nothing.
    _flag(backend_config, "coalesce-request-input")
    library, asked_by = _library(context)
    return EngineSettings(
        library=library,
        library_asked_by=asked_by,
        plugins=_plugins(backend_config.get("plugins", "")),
        policy=_policy(backend_config.get("execution-policy", "DEVICE_BLOCKING")),
        is_version_compatible=_flag(backend_config, "version-compatible"),
        allocation=_allocation(context.spec.parameters.get(ALLOCATION, "STATIC")),
        priority=_priority(optimization.priority),
        pins_inputs=_pinned(optimization, "input_pinned_memory"),
        pins_outputs=_pinned(optimization, "output_pinned_memory"),
        uses_graphs=optimization.cuda.graphs,
        waits_busily=optimization.cuda.busy_wait_events,
        has_output_stream=optimization.cuda.output_copy_stream,
    )


def _library(context: ModelContext) -> tuple[str, str]:
    """The model's word goes before the server's."""
    for values, where in (
        (context.spec.parameters, f"parameter '{LIBRARY}'"),
        (context.backend_config, f"--backend-config=tensorrt,{LIBRARY}"),
    ):
        name = values.get(LIBRARY, "")
        if name and name not in PRODUCTS:
            raise InvalidArgumentError(
                f"{where} is '{name}': it must be one of {', '.join(PRODUCTS)}"
            )
        if name:
            return name, where
    return "", ""


def _plugins(text: str) -> tuple[Path, ...]:
    paths = tuple(Path(item.strip()) for item in text.split(";") if item.strip())
    for path in paths:
        if not path.is_file():
            raise InvalidArgumentError(
                f"--backend-config=tensorrt,plugins names '{path}', and there is no such file: "
                "write the paths of plugin libraries, separated by ';'"
            )
    return paths


def _policy(text: str) -> ExecutionPolicy:
    try:
        return ExecutionPolicy(text)
    except ValueError:
        known = ", ".join(item.value for item in ExecutionPolicy)
        raise InvalidArgumentError(
            f"--backend-config=tensorrt,execution-policy is '{text}': it must be one of {known}"
        ) from None


def _allocation(text: str) -> str:
    if text not in _ALLOCATIONS:
        raise InvalidArgumentError(
            f"parameter '{ALLOCATION}' is '{text}': it must be one of {', '.join(_ALLOCATIONS)}"
        )
    return text


def _flag(values: Mapping[str, str], key: str) -> bool:
    text = values.get(key, "false")
    flag = _FLAGS.get(text.lower())
    if flag is None:
        raise InvalidArgumentError(
            f"--backend-config=tensorrt,{key} is '{text}': it must be true or false"
        )
    return flag


def _priority(priority: int) -> StreamPriority:
    known = {
        _PRIORITY.PRIORITY_MAX: StreamPriority.HIGH,
        _PRIORITY.PRIORITY_MIN: StreamPriority.LOW,
    }
    return known.get(priority, StreamPriority.DEFAULT)


def _pinned(optimization: pb.ModelOptimizationPolicy, name: str) -> bool:
    return not optimization.HasField(name) or getattr(optimization, name).enable


def refuse_non_linear(context: ModelContext) -> None:
    """Raises: UnsupportedError, with what to do instead (TRT-04, CFG-038)."""
    for item in (*context.config.input, *context.config.output):
        if item.is_non_linear_format_io:
            raise UnsupportedError(
                f"'{item.name}' has is_non_linear_format_io: bytes in a vectorized layout cannot "
                "be batched or checked here; build the engine with linear inputs and outputs "
                "(without DIRECT_IO), which costs one reformat on the device, and remove it"
            )


def group_of(spec: ModelSpec, placement: Placement) -> InstanceGroup | None:
    """The instance group that an instance belongs to: it is named after it, with a number."""
    name, _, _ = placement.instance_name.rpartition("_")
    return next((group for group in spec.instance_groups if group.name == name), None)


def dla_core_of(group: InstanceGroup | None) -> int | None:
    """The DLA core of `secondary_devices`, as "KIND_NVDLA:1". Raises: InvalidArgumentError."""
    if group is None or not group.secondary_devices:
        return None
    if len(group.secondary_devices) > 1:
        raise InvalidArgumentError(
            f"instance group '{group.name}' has {len(group.secondary_devices)} secondary_devices: "
            "an engine runs on one DLA core; write one group for each"
        )
    _, _, number = group.secondary_devices[0].partition(":")
    return int(number)


def profile_numbers(group: InstanceGroup | None, count: int) -> tuple[int, ...]:
    """The profiles of an instance of this group, of an engine that has `count`; the first of the
    engine where the group names none (CFG-066). Raises: InvalidArgumentError.
    """
    if group is None or not group.profiles:
        return (0,)
    numbers = []
    for text in group.profiles:
        if not (text.isascii() and text.isdigit()) or int(text) >= count:
            have = "profile 0 only" if count == 1 else f"profiles 0 to {count - 1}"
            raise InvalidArgumentError(
                f"instance group '{group.name}' asks for profile '{text}', but the engine has "
                f"{have}"
            )
        numbers.append(int(text))
    return tuple(dict.fromkeys(numbers))
