"""What an engine says of its inputs and outputs, beside what the config says: fill, compare.

Pure; works on plain descriptions, not on the runtime's objects. Load threads enter. Behaviour after
spec AUT-04, TRT-04, TRT-05, CFG-035.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.backends.tensorrt.profiles import Profile
from serving.config.compare import inputs_by_server, outputs_for_server
from serving.config.decode import ModelSpec, TensorSpec
from serving.config.protobuf import pb
from serving.datatypes import BY_NAME, DataType
from serving.errors import InvalidArgumentError, UnsupportedError

Shape = tuple[int, ...]

_TYPES = {
    "FLOAT": "FP32",
    "HALF": "FP16",
    "BF16": "BF16",
    "INT8": "INT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "BOOL": "BOOL",
    "UINT8": "UINT8",
}
"""DataType of TensorRT -> of the protocol. FP8, INT4, FP4 and E8M0 have no name there."""


@dataclass(frozen=True, slots=True)
class EngineTensor:
    name: str
    type_name: str
    """Of TensorRT, e.g. FLOAT or FP8."""
    shape: Shape
    """-1 is any: within the profiles for an input, known after a run for an output."""
    is_shape_tensor: bool = False
    """Its values are shapes: the runtime reads or writes it on the host."""
    is_linear: bool = True
    """Plain row-major bytes."""

    def datatype(self, model: str) -> DataType:
        """Raises: UnsupportedError for what no request can carry."""
        name = _TYPES.get(self.type_name)
        if name is None:
            raise UnsupportedError(
                f"'{self.name}' of model '{model}' is {self.type_name} in the engine, which no "
                f"request or response can carry: build the engine with one of "
                f"{', '.join(_TYPES.values())} there"
            )
        return BY_NAME[name]


@dataclass(frozen=True, slots=True)
class EngineSignature:
    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    profiles: tuple[Profile, ...]

    @property
    def tensors(self) -> tuple[EngineTensor, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def max_batch_size(self) -> int:
        """The largest first dimension that some profile takes for every input, 0 where one of the
        tensors has no first dimension of any size."""
        rows = [item for item in self.tensors if not item.is_shape_tensor]
        if not rows or not all(item.shape and item.shape[0] == -1 for item in rows):
            return 0
        names = [item.name for item in self.inputs if not item.is_shape_tensor]
        return max((profile.max_batch(names) for profile in self.profiles), default=0)


def complete(config: pb.ModelConfig, signature: EngineSignature) -> None:
    """Fill max_batch_size, the scheduler, input and output where the config leaves I/O out.

    Raises: InvalidArgumentError, UnsupportedError.
    """
    if config.input and config.output:
        return
    if config.max_batch_size == 0:
        config.max_batch_size = signature.max_batch_size
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()
    if not config.input:
        made = inputs_by_server(config)
        for item in signature.inputs:
            if item.name not in made:
                _fill(config.input.add(), item, config)
    if not config.output:
        kept = outputs_for_server(config)
        for item in signature.outputs:
            if item.name not in kept:
                _fill(config.output.add(), item, config)


def _fill(
    target: pb.ModelInput | pb.ModelOutput, item: EngineTensor, config: pb.ModelConfig
) -> None:
    target.name = item.name
    target.data_type = pb.DataType.Value(item.datatype(config.name).config_name)
    dims = dims_of_request(item, config.max_batch_size > 0)
    target.is_shape_tensor = item.is_shape_tensor
    target.dims.extend(dims or (1,))
    if not dims and config.max_batch_size > 0:
        # dims must not be empty: callers send one element, the engine gets none but the batch.
        target.reshape.SetInParent()


def dims_of_request(item: EngineTensor, is_batching: bool) -> Shape:
    """The shape of one request's tensor without the batch axis; a shape tensor of an engine that
    batches holds one value more, the batch size, which the server adds (CFG-035)."""
    if not is_batching:
        return item.shape
    if item.is_shape_tensor:
        return tuple(dim - 1 if dim > 0 else dim for dim in item.shape)
    return item.shape[1:]


def check(spec: ModelSpec, signature: EngineSignature) -> None:
    """Raises: InvalidArgumentError or UnsupportedError when config and engine disagree (TRT-05)."""
    _check_names(spec, signature)
    inputs = {item.name: item for item in signature.inputs}
    outputs = {item.name: item for item in signature.outputs}
    for item in signature.tensors:
        if not item.is_linear:
            raise UnsupportedError(
                f"'{item.name}' of model '{spec.name}' has a vectorized layout in the engine, "
                "which no request can carry: build the engine with linear inputs and outputs "
                "(without DIRECT_IO)"
            )
    for tensor in spec.backend_inputs.values():
        _check_tensor(spec, tensor, inputs[tensor.name], "input")
    for tensor in spec.backend_outputs.values():
        _check_tensor(spec, tensor, outputs[tensor.name], "output")
    for made in spec.batch_inputs:
        for name in made.names:
            _check_type(spec, made.datatype, inputs[name], "input")
    if spec.has_batch_axis:
        _check_batch_size(spec, signature)


def _check_names(spec: ModelSpec, signature: EngineSignature) -> None:
    known = [item.name for item in signature.inputs]
    declared = [*spec.backend_inputs, *(name for item in spec.batch_inputs for name in item.names)]
    for name in declared:
        if name not in known:
            raise InvalidArgumentError(
                f"unexpected inference input '{name}' of model '{spec.name}', allowed inputs are: "
                f"{', '.join(known)}"
            )
    missing = [name for name in known if name not in declared]
    if missing:
        raise InvalidArgumentError(
            f"unable to load model '{spec.name}', configuration expects {len(declared)} inputs, "
            f"the engine has {len(known)}: add {', '.join(missing)} to `input`"
        )
    outputs = [item.name for item in signature.outputs]
    for name in spec.backend_outputs:
        if name not in outputs:
            raise InvalidArgumentError(
                f"unexpected inference output '{name}' of model '{spec.name}', allowed outputs "
                f"are: {', '.join(outputs)}"
            )


def _check_tensor(spec: ModelSpec, tensor: TensorSpec, item: EngineTensor, side: str) -> None:
    _check_type(spec, tensor.datatype, item, side)
    if side == "input" and tensor.is_shape_tensor != item.is_shape_tensor:
        have = "a shape tensor" if item.is_shape_tensor else "no shape tensor"
        value = "true" if tensor.is_shape_tensor else "false"
        raise InvalidArgumentError(
            f"input '{tensor.name}' of model '{spec.name}' is {have} in the engine, but "
            f"is_shape_tensor is {value} in the config"
        )
    if side == "input" and tensor.allow_ragged_batch:
        return  # laid end to end: its shape is none of a request's
    if any(tensor.name in made.names for made in spec.batch_outputs):
        return
    wanted = tensor.dims if tensor.reshape is None else tensor.reshape
    have_dims = dims_of_request(item, spec.has_batch_axis)
    if spec.has_batch_axis and not item.is_shape_tensor and not item.shape:
        raise InvalidArgumentError(_no_batch(spec, item))
    # A scalar may have dims [1]: callers send one element.
    if not (have_dims == () and wanted == (1,)) and not _agree(have_dims, wanted):
        note = ""
        if spec.has_batch_axis:
            note = f" (after the batch dimension, as max_batch_size is {spec.max_batch_size})"
        raise InvalidArgumentError(
            f"{side} '{tensor.name}' of model '{spec.name}' has dims {list(have_dims)} in the "
            f"engine, but {list(wanted)} in the config{note}: change dims, or add a reshape"
        )


def _agree(engine: Shape, config: Shape) -> bool:
    return len(engine) == len(config) and all(
        have in (-1, want) for have, want in zip(engine, config, strict=True)
    )


def _check_type(spec: ModelSpec, wanted: DataType, item: EngineTensor, side: str) -> None:
    datatype = item.datatype(spec.name)
    if datatype is not wanted:
        raise InvalidArgumentError(
            f"{side} '{item.name}' of model '{spec.name}' is {datatype.config_name} in the engine, "
            f"but data_type is {wanted.config_name} in the config"
        )


def _check_batch_size(spec: ModelSpec, signature: EngineSignature) -> None:
    flat = {item.name for item in spec.inputs.values() if item.allow_ragged_batch}
    flat.update(name for made in spec.batch_inputs for name in made.names)
    names = []
    for item in signature.inputs:
        if item.is_shape_tensor or item.name in flat:
            continue
        if not item.shape or item.shape[0] not in (-1, spec.max_batch_size):
            raise InvalidArgumentError(_no_batch(spec, item))
        names.append(item.name)
    largest = max((profile.max_batch(names) for profile in signature.profiles), default=0)
    if names and spec.max_batch_size > largest:
        raise InvalidArgumentError(
            f"model '{spec.name}' has max_batch_size {spec.max_batch_size}, but the engine takes "
            f"batches of {largest} at most: lower max_batch_size, or build the engine with a "
            "profile up to that size"
        )


def _no_batch(spec: ModelSpec, item: EngineTensor) -> str:
    return (
        f"model '{spec.name}' has max_batch_size {spec.max_batch_size}, but '{item.name}' has "
        f"shape {list(item.shape)} in the engine, without a first dimension of any size: set "
        "max_batch_size to 0 and give the full shapes as dims, or build the engine from a model "
        "with a dynamic first dimension"
    )
