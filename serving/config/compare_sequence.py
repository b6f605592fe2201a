"""Controls and states of a sequence model beside its model file: names, types, shapes.

They are inputs and outputs of the model file that the config does not list under `input`. Pure
functions; any thread. Behaviour after the checks of Triton's ONNX Runtime backend
(ValidateBooleanSequenceControl and its like).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.signature import Signature, TensorSignature
from serving.config.suggest import nearest
from serving.datatypes import BY_CONFIG_NUMBER

CODE = "GAP-06"
_FLAG_TYPES = {
    "int32_false_true": pb.TYPE_INT32,
    "fp32_false_true": pb.TYPE_FP32,
    "bool_false_true": pb.TYPE_BOOL,
}


def compare_sequence(report: Report, signature: Signature, file: str) -> None:
    """Report every control and state that the model file `file` does not have like this."""
    sequence = report.config.sequence_batching
    inputs = {item.name: item for item in (*signature.inputs, *signature.optional_inputs)}
    outputs = {item.name: item for item in signature.outputs}
    for index, item in enumerate(sequence.control_input):
        path = f"sequence_batching.control_input[{index}]"
        tensor = _known(report, f"{path}.name", ("input", item.name), inputs, file)
        if tensor is not None:
            for control in item.control:
                _compare_type(report, path, tensor, _control_type(control), file)
            _compare_shape(report, path, tensor, [1], file)
    for index, state in enumerate(sequence.state):
        path = f"sequence_batching.state[{index}]"
        places = (("input", state.input_name, inputs), ("output", state.output_name, outputs))
        for side, name, known in places:
            tensor = _known(report, f"{path}.{side}_name", (side, name), known, file)
            if tensor is not None:
                _compare_type(report, f"{path}.data_type", tensor, state.data_type, file)
                _compare_shape(report, f"{path}.dims", tensor, list(state.dims), file)


def _control_type(control: pb.ModelSequenceBatching.Control) -> int:
    if control.kind == pb.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID:
        return int(control.data_type)
    given = [number for field, number in _FLAG_TYPES.items() if len(getattr(control, field))]
    return int(given[0] if len(given) == 1 else pb.TYPE_INVALID)


def _known(
    report: Report,
    path: str,
    wanted: tuple[str, str],
    tensors: Mapping[str, TensorSignature],
    file: str,
) -> TensorSignature | None:
    """The tensor of side and name `wanted`; None, and a finding, when the file has none."""
    side, name = wanted
    if not name or name in tensors:
        return tensors.get(name)
    close = nearest(name, list(tensors))
    listed = ", ".join(f"'{item}'" for item in tensors)
    report.error(
        path,
        f"the sequence batcher is to feed or read {side} '{name}', but {file} has {side}s {listed}",
        f"did you mean '{close}'?" if close else f"use a name that {file} has, or remove it",
        code=CODE,
    )
    return None


def _compare_type(
    report: Report, path: str, tensor: TensorSignature, number: int, file: str
) -> None:
    configured = BY_CONFIG_NUMBER.get(number)
    if configured is None or configured is tensor.datatype:
        return
    report.error(
        path,
        f"'{tensor.name}': the config says {configured.config_name}, {file} says "
        f"{tensor.datatype.config_name}",
        f"use {tensor.datatype.config_name} here",
        code=CODE,
    )


def _compare_shape(
    report: Report, path: str, tensor: TensorSignature, dims: Sequence[int], file: str
) -> None:
    if not tensor.is_rank_known or not dims:
        return
    batching = report.config.max_batch_size > 0
    full = [-1, *dims] if batching else list(dims)
    model = list(tensor.shape)
    fits = len(full) == len(model) and all(
        want in (-1, got) for want, got in zip(model, full, strict=True)
    )
    if fits or (not model and full == [1]):
        return
    axis = f", that is {full} with the batch axis" if batching else ""
    report.error(
        path,
        f"'{tensor.name}': the config says {list(dims)}{axis}; {file} says {model}",
        "change dims, or export the model with the shape of the config",
        code=CODE,
    )
