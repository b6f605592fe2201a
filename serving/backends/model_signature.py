"""A loaded model beside what the config says of its tensors: fill one from the other, compare.

For every runtime that tells names, types and shapes. Pure; works on plain descriptions, not on the
runtime's objects. Behaviour after spec AUT-03, ORT-12, ORT-13. Load threads enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.config.compare import inputs_by_server, outputs_for_server
from serving.config.decode import ModelSpec, TensorSpec
from serving.config.protobuf import pb
from serving.datatypes import BY_NAME, DataType
from serving.errors import InvalidArgumentError, UnsupportedError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelTensor:
    name: str
    datatype: DataType | None
    """None for what no request can carry."""
    shape: Shape
    """-1 is any. Empty for a scalar, and where the rank is not known."""
    is_rank_known: bool = True
    type_text: str = ""
    """As the runtime writes it, e.g. seq(tensor(float))."""

    @property
    def can_batch(self) -> bool:
        """Its first dimension is known to be of any size."""
        return bool(self.shape) and self.shape[0] == -1

    @property
    def may_batch(self) -> bool:
        """Nothing known speaks against it."""
        return self.can_batch or not self.is_rank_known

    @property
    def is_scalar(self) -> bool:
        return self.is_rank_known and not self.shape


@dataclass(frozen=True, slots=True)
class ModelSignature:
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    optional_inputs: tuple[ModelTensor, ...] = ()
    """Initializers that a caller may replace."""

    @property
    def can_batch(self) -> bool:
        return all(item.can_batch for item in (*self.inputs, *self.outputs))


def complete(config: pb.ModelConfig, signature: ModelSignature, default_batch_size: int) -> None:
    """Fill max_batch_size, input, output and the scheduler where the config leaves I/O out.

    Raises: InvalidArgumentError, UnsupportedError.
    """
    if config.input and config.output:
        return
    if config.max_batch_size > 0:
        tensors = (*signature.inputs, *signature.outputs)
        _check_batching(config.name, config.max_batch_size, tensors)
    if config.max_batch_size == 0 and signature.can_batch:
        config.max_batch_size = default_batch_size
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()
    batching = config.max_batch_size > 0
    if not config.input:
        made = inputs_by_server(config)
        for item in signature.inputs:
            if item.name not in made:
                _fill(config.input.add(), item, batching, config.name)
    if not config.output:
        kept = outputs_for_server(config)
        for item in signature.outputs:
            if item.name not in kept:
                _fill(config.output.add(), item, batching, config.name)


def check(spec: ModelSpec, signature: ModelSignature) -> None:
    """Raises: InvalidArgumentError or UnsupportedError when config and model file disagree."""
    _check_known_tensors(spec, signature)
    inputs = {item.name: item for item in (*signature.inputs, *signature.optional_inputs)}
    outputs = {item.name: item for item in signature.outputs}
    # Their shapes are not those of one request: inputs laid end to end, outputs cut by a rule.
    flat_inputs = {item.name for item in spec.inputs.values() if item.allow_ragged_batch}
    flat_outputs = {name for item in spec.batch_outputs for name in item.names}
    tensors, results = spec.backend_inputs, spec.backend_outputs
    if spec.has_batch_axis:
        used = [inputs[name] for name in tensors if name not in flat_inputs]
        used += [outputs[name] for name in results if name not in flat_outputs]
        _check_batching(spec.name, spec.max_batch_size, used)
    for tensor in tensors.values():
        item = inputs[tensor.name]
        _check_type(spec, tensor.datatype, item, "input")
        if tensor.name in flat_inputs:
            _check_flat(spec, item)
        else:
            _check_shape(spec, tensor, item, "input")
    for tensor in results.values():
        item = outputs[tensor.name]
        _check_type(spec, tensor.datatype, item, "output")
        if tensor.name not in flat_outputs:
            _check_shape(spec, tensor, item, "output")
    for made in spec.batch_inputs:
        for name in made.names:
            _check_type(spec, made.datatype, inputs[name], "input")


def _fed_by_server(spec: ModelSpec) -> list[str]:
    """Inputs of the model that no request carries: about the batch, about the sequence, states."""
    names = [name for item in spec.batch_inputs for name in item.names]
    return names + [name for name in spec.backend_inputs if name not in spec.inputs]


def _check_known_tensors(spec: ModelSpec, signature: ModelSignature) -> None:
    known = [item.name for item in (*signature.inputs, *signature.optional_inputs)]
    declared = [*spec.inputs, *_fed_by_server(spec)]
    for name in declared:
        if name not in known:
            raise InvalidArgumentError(
                f"unexpected inference input '{name}', allowed inputs are: {', '.join(known)}"
            )
    missing = [item.name for item in signature.inputs if item.name not in declared]
    if missing:
        raise InvalidArgumentError(
            f"unable to load model '{spec.name}', configuration expects {len(declared)} "
            f"inputs, model provides {len(signature.inputs)}: add {', '.join(missing)} to `input`"
        )
    outputs = [item.name for item in signature.outputs]
    for name in spec.backend_outputs:
        if name not in outputs:
            raise InvalidArgumentError(
                f"unexpected inference output '{name}', allowed outputs are: {', '.join(outputs)}"
            )


def _check_type(spec: ModelSpec, wanted: DataType, item: ModelTensor, side: str) -> None:
    datatype = _datatype_of(item, side, spec.name)
    if datatype is not wanted:
        raise InvalidArgumentError(
            f"{side} '{item.name}' of model '{spec.name}' is {datatype.config_name} in the model "
            f"file, but data_type is {wanted.config_name} in the config"
        )


def _check_flat(spec: ModelSpec, item: ModelTensor) -> None:
    if item.is_rank_known and item.shape != (-1,):
        raise InvalidArgumentError(
            f"unable to load model '{spec.name}', configuration expects model provides input with "
            f"shape [-1] for ragged input '{item.name}', model provides {list(item.shape)}: "
            "requests are laid end to end there; remove allow_ragged_batch, or export the model "
            "with one dimension of any size"
        )


def _check_shape(spec: ModelSpec, tensor: TensorSpec, item: ModelTensor, side: str) -> None:
    dims = tensor.dims if tensor.reshape is None else tensor.reshape
    wanted = (-1, *dims) if spec.has_batch_axis else dims
    # A scalar may have dims [1]: callers send one element (spec ORT-13).
    fits_scalar = item.is_scalar and wanted in ((), (1,))
    if item.is_rank_known and not fits_scalar and not _agree(item.shape, wanted):
        note = ""
        if spec.has_batch_axis:
            note = (
                " (a batch dimension first, because max_batch_size is "
                f"{spec.max_batch_size}, then the dims)"
            )
        raise InvalidArgumentError(
            f"{side} '{tensor.name}' of model '{spec.name}' has shape {list(item.shape)} in the "
            f"model file, but the config makes it {list(wanted)}{note}: change dims, or add a "
            "reshape"
        )


def _agree(model: Shape, config: Shape) -> bool:
    return len(model) == len(config) and all(
        have in (-1, want) for have, want in zip(model, config, strict=True)
    )


def _datatype_of(item: ModelTensor, side: str, model: str) -> DataType:
    datatype = item.datatype
    if datatype is None:
        raise UnsupportedError(
            f"{side} '{item.name}' of model '{model}' is {item.type_text} in the model file, "
            "which no request or response can carry: only tensors of the types "
            f"{', '.join(sorted(BY_NAME))} can; export the model with a tensor there"
        )
    return datatype


def _fill(
    target: pb.ModelInput | pb.ModelOutput, item: ModelTensor, batching: bool, model: str
) -> None:
    side = "input" if isinstance(target, pb.ModelInput) else "output"
    datatype = _datatype_of(item, side, model)
    if not item.is_rank_known:
        raise InvalidArgumentError(
            f"the file of model '{model}' does not say the shape of {side} '{item.name}': give "
            f"`{side}` in the config"
        )
    dims = item.shape[1:] if batching else item.shape
    target.name = item.name
    target.data_type = pb.DataType.Value(datatype.config_name)
    if dims:
        target.dims.extend(dims)
    else:
        # dims must not be empty in a config: callers send one element, the model gets a scalar.
        # Without batching an empty reshape is refused (VAL-42); the instance squeezes instead.
        target.dims.append(1)
        if batching:
            target.reshape.SetInParent()


def _check_batching(model: str, max_batch_size: int, tensors: Sequence[ModelTensor]) -> None:
    for item in tensors:
        if not item.may_batch:
            raise InvalidArgumentError(
                f"model '{model}' has max_batch_size {max_batch_size}, but the model file does "
                f"not support batching: '{item.name}' has shape {list(item.shape)}, and batching "
                "needs a first dimension of any size on every input and output; set "
                "max_batch_size to 0 and give the full shapes as dims, or export the model with "
                "a dynamic first dimension"
            )
