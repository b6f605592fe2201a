"""An OpenVINO model beside the config: its tensors, its batch size, the library's words.

Works on objects of openvino that are handed in, and imports none. Load threads enter. Source: spec
OV-01.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from serving.backends.model_signature import ModelSignature, ModelTensor
from serving.backends.openvino_options import OpenVinoSettings
from serving.config.decode import ModelSpec, SchedulerKind
from serving.datatypes import BY_NAME, DataType
from serving.errors import InvalidArgumentError, ModelLoadError, UnsupportedError

_TYPES = {
    "boolean": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
    "f64": "FP64",
}
_PLACES = re.compile(
    r"^Exception from \S+:\d+:$|^FrontEnd API failed with \w+:$|Check '.*?' failed at \S+:\d+:",
    re.M,
)
"""What OpenVINO puts before its words: places in its sources, conditions."""
_UNKNOWN = re.compile(r"(?:Conversion is failed for|No conversion rule found for operations): (.*)")


def signature_of(model: Any, wanted: Container[str] = ()) -> ModelSignature:
    """With those of the wanted names where tensors have several."""
    return ModelSignature(
        tuple(_tensor(port, wanted) for port in model.inputs),
        tuple(_tensor(port, wanted) for port in model.outputs),
    )


def _tensor(port: Any, wanted: Container[str]) -> ModelTensor:
    kind = port.element_type.to_string()
    shape = port.partial_shape
    is_known = shape.rank.is_static
    dims = tuple(dim.get_length() if dim.is_static else -1 for dim in shape) if is_known else ()
    names = names_of(port)
    name = next((name for name in names if name in wanted), names[0])
    return ModelTensor(name, _datatype(kind), dims, is_known, kind)


def _datatype(kind: str) -> DataType | None:
    name = _TYPES.get(kind)
    return BY_NAME[name] if name else None


def names_of(port: Any) -> list[str]:
    """Of a tensor, the usual one first; older IR files name the layers only."""
    names = port.get_names()
    if names:
        usual = port.get_any_name()
        return [usual, *sorted(names - {usual})]
    node = port.get_node()
    if node.get_type_name() == "Result":
        node = node.input_value(0).get_node()
    return [node.get_friendly_name()]


def refuse_types(spec: ModelSpec, signature: ModelSignature) -> None:
    for item in (*signature.inputs, *signature.outputs):
        if item.datatype is None:
            raise UnsupportedError(
                f"tensor '{item.name}' of model '{spec.name}' is {item.type_text} in the model "
                "file: the openvino backend carries numbers of "
                f"{', '.join(sorted(_TYPES.values()))} only; convert the model's tensor, or serve "
                "it with the backend onnxruntime"
            )


def reshape(model: Any, spec: ModelSpec, settings: OpenVinoSettings) -> None:
    """Give the model the batch size, or the dims, that the config asks for.

    Raises: ModelLoadError where the model's operations do not allow that, InvalidArgumentError.
    """
    is_flat = spec.batch_inputs or any(t.allow_ragged_batch for t in spec.inputs.values())
    if settings.pads_batches and is_flat:
        raise InvalidArgumentError(
            f"model '{spec.name}' has ragged inputs or batch_input, whose batches cannot be filled "
            "up: remove the parameter ENABLE_BATCH_PADDING"
        )
    shapes: dict[Any, list[int]] = {}
    for port in model.inputs:
        own = port.partial_shape
        tensor = next(
            (spec.backend_inputs[n] for n in names_of(port) if n in spec.backend_inputs), None
        )
        if tensor is None or tensor.allow_ragged_batch or not own.rank.is_static:
            continue
        dims = [dim.get_length() if dim.is_static else -1 for dim in own]
        wanted = list(dims)
        if settings.takes_dims_of_config:
            inner = tensor.dims if tensor.reshape is None else tensor.reshape
            wanted = [*dims[:1], *inner] if spec.has_batch_axis else list(inner)
        if spec.has_batch_axis and wanted and not settings.keeps_batch_size:
            wanted[0] = spec.max_batch_size if settings.pads_batches else -1
        if wanted != dims:
            shapes[port] = wanted
    if not shapes:
        return
    try:
        model.reshape(shapes)
    except Exception as error:
        raise ModelLoadError(
            f"model '{spec.name}' cannot be given the batch size of its config: {cause_of(error)}; "
            "set the parameter SKIP_OV_DYNAMIC_BATCHSIZE to YES to leave it as it is"
        ) from error


def as_batched(
    signature: ModelSignature, spec: ModelSpec, settings: OpenVinoSettings
) -> ModelSignature:
    """As it looks to callers: a batch size that is fixed at max_batch_size counts as any."""
    if not spec.has_batch_axis or not (settings.keeps_batch_size or settings.pads_batches):
        return signature
    fixed = spec.max_batch_size
    return ModelSignature(
        *(
            tuple(
                ModelTensor(
                    item.name,
                    item.datatype,
                    (-1, *item.shape[1:]) if item.shape[:1] == (fixed,) else item.shape,
                    item.is_rank_known,
                    item.type_text,
                )
                for item in side
            )
            for side in (signature.inputs, signature.outputs)
        )
    )


def fixed_batch(compiled: Any, spec: ModelSpec) -> int:
    """The only batch size that the model runs; 0 for a model that runs any."""
    if not spec.has_batch_axis:
        return 0
    for port in compiled.inputs:
        shape = port.partial_shape
        if shape.rank.is_static and len(shape) and shape[0].is_static:
            return int(shape[0].get_length())
    return 0


def check_one_sequence(spec: ModelSpec) -> None:
    """Raises: UnsupportedError for a model with states of its own whose instances would hold
    several sequences, which would see each other's."""
    if spec.scheduler is SchedulerKind.SEQUENCE and spec.sequence_slots > 1:
        raise UnsupportedError(
            f"model '{spec.name}' keeps states inside (ReadValue, Assign), and its config gives an "
            f"instance {spec.sequence_slots} sequences, which would share them: set max_batch_size "
            "to 1 or 0 and max_candidate_sequences to 1, and add instances for more sequences"
        )


def cause_of(error: Exception) -> str:
    """The library's own words in one line, without places in its sources."""
    text = str(error)
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        return f"it does not know how to run the operations {unknown.group(1)} of this model"
    lines = (_PLACES.sub("", line).strip() for line in text.splitlines())
    return " ".join(line for line in lines if line)[:300] or type(error).__name__
