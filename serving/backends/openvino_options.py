"""What a config asks of OpenVINO: read, checked, independent of the runtime itself.

Names and meanings after the parameters of Triton's OpenVINO backend (spec OV-01). Load threads
enter; looks at the names of files only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.backends.base import ModelContext
from serving.errors import InvalidArgumentError
from serving.native_code import require_allowed

_PRECISIONS = ("f32", "f16", "bf16", "dynamic")
_HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")
_LARGEST = 2**31 - 1
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    device: str = "CPU"
    """CPU, GPU, GPU.1: as OpenVINO names devices."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """For compiling the model."""
    keeps_batch_size: bool = False
    """The model's own first dimension stays as it is."""
    pads_batches: bool = False
    """The model runs at max_batch_size always; smaller batches are filled up."""
    takes_dims_of_config: bool = False
    extensions: tuple[Path, ...] = ()
    """Libraries with operations for the CPU."""


def read_settings(context: ModelContext) -> OpenVinoSettings:
    """Raises: InvalidArgumentError naming parameter and value."""
    values = context.spec.parameters
    return OpenVinoSettings(
        device=values.get("TARGET_DEVICE", "CPU").strip().upper() or "CPU",
        properties=_properties(values),
        keeps_batch_size=_flag(values, "SKIP_OV_DYNAMIC_BATCHSIZE"),
        pads_batches=_flag(values, "ENABLE_BATCH_PADDING"),
        takes_dims_of_config=_flag(values, "RESHAPE_IO_LAYERS"),
        extensions=_extensions(context),
    )


def _properties(values: Mapping[str, str]) -> dict[str, str]:
    # OpenVINO computes in bfloat16 where the CPU can: three digits. Answers are to be those of the
    # model, whoever runs it.
    precision = values.get("INFERENCE_PRECISION_HINT", "f32").strip().casefold()
    if precision not in _PRECISIONS:
        raise _bad(values, "INFERENCE_PRECISION_HINT", f"one of {', '.join(_PRECISIONS)}")
    if _flag(values, "HINT_BF16"):
        precision = "bf16"
    properties = {"INFERENCE_PRECISION_HINT": precision}
    for name in ("INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS"):
        if name in values:
            if not _is_count(values[name].strip()):
                raise _bad(values, name, "a whole number of threads, 0 for every core")
            properties[name] = values[name].strip()
    if "NUM_STREAMS" in values:
        streams = values["NUM_STREAMS"].strip().upper()
        if streams not in ("AUTO", "NUMA") and not (_is_count(streams) and int(streams)):
            raise _bad(values, "NUM_STREAMS", "AUTO, NUMA or a whole number above 0")
        properties["NUM_STREAMS"] = streams
    if "PERFORMANCE_HINT" in values:
        hint = values["PERFORMANCE_HINT"].strip().upper()
        if hint not in _HINTS:
            raise _bad(values, "PERFORMANCE_HINT", f"one of {', '.join(_HINTS)}")
        properties["PERFORMANCE_HINT"] = hint
    return properties


def _extensions(context: ModelContext) -> tuple[Path, ...]:
    text = context.spec.parameters.get("CPU_EXTENSION_PATH", "").strip()
    if not text:
        return ()
    require_allowed("openvino", "parameter 'CPU_EXTENSION_PATH'", context.backend_config)
    # An absolute path stays what it is.
    places = [context.version_directory / text, context.model_directory / text]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InvalidArgumentError(
            f"parameter 'CPU_EXTENSION_PATH' is '{text}': there is no such file, neither there nor "
            f"in the folder of model '{context.spec.name}'"
        )
    return (found,)


def _is_count(text: str) -> bool:
    return text.isdecimal() and int(text) <= _LARGEST


def _flag(values: Mapping[str, str], name: str) -> bool:
    value = _YES.get(values.get(name, "no").strip().casefold())
    if value is None:
        raise _bad(values, name, "YES or NO")
    return value


def _bad(values: Mapping[str, str], name: str, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"parameter '{name}' is '{values[name]}': it must be {wanted}")
