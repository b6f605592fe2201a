"""Config beside model file: fill one from the other, and say where they contradict.

Pure functions; any thread. Behaviour after AUT-03 and the checks of Triton's ONNX Runtime backend.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from serving.config.compare_sequence import compare_sequence
from serving.config.findings import Finding
from serving.config.mend import quoted
from serving.config.protobuf import pb
from serving.config.repair import to_repair
from serving.config.report import Report
from serving.config.signature import Signature, TensorSignature
from serving.config.suggest import nearest
from serving.datatypes import BY_CONFIG_NUMBER

DEFAULT_MAX_BATCH_SIZE = 4
CODE = "GAP-06"
_TENSOR = re.compile(r"(input|output)\[(\d+)\]")


def fill_from_signature(
    config: pb.ModelConfig,
    signature: Signature,
    *,
    default_max_batch_size: int = DEFAULT_MAX_BATCH_SIZE,
) -> list[str]:
    """What auto-complete takes from the model file. Returns the field paths that it filled."""
    filled: list[str] = []
    if config.input and config.output:
        return filled
    if config.max_batch_size == 0 and signature.can_batch:
        config.max_batch_size = default_max_batch_size
        filled.append("max_batch_size")
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()
        filled.append("dynamic_batching")
    is_batching = config.max_batch_size > 0
    others = inputs_by_server(config) | outputs_for_server(config)
    for kind, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        target = getattr(config, kind)
        if target:
            continue
        for tensor in tensors:
            if tensor.name in others:
                continue
            item = target.add()
            item.name = tensor.name
            item.data_type = tensor.datatype.config_number
            _fill_dims(item, tensor.shape, is_batching)
        filled.append(kind)
    return filled


def _fill_dims(
    item: pb.ModelInput | pb.ModelOutput, shape: Sequence[int], is_batching: bool
) -> None:
    dims = shape[1:] if is_batching else shape
    item.dims.extend(dims or [1])
    # One value for each item of the batch: the config must name a dimension that the model lacks.
    if not dims and is_batching:
        item.reshape.SetInParent()


def compare(report: Report, signature: Signature, file: str) -> None:
    """Report every contradiction between the completed config and the model file `file`."""
    config = report.config
    for name, kind in signature.unsupported.items():
        report.error(
            "",
            f"{file}: tensor '{name}' is a {kind}, which no request can carry",
            "export the model with plain tensors as inputs and outputs",
            code=CODE,
        )
    known_inputs = (*signature.inputs, *signature.optional_inputs)
    _compare_names(report, "input", [item.name for item in config.input], known_inputs, file)
    _compare_names(report, "output", [item.name for item in config.output], signature.outputs, file)
    declared = {item.name for item in config.input} | inputs_by_server(config)
    for tensor in signature.inputs:
        if tensor.name not in declared:
            report.error(
                "input",
                f"{file} needs input '{tensor.name}' {_says(tensor)}, and the config does not "
                f"declare it",
                "declare it, or remove every input to let auto-complete fill them",
                code=CODE,
            )
    _compare_tensors(report, "input", config.input, known_inputs, file)
    _compare_tensors(report, "output", config.output, signature.outputs, file)
    compare_sequence(report, signature, file)
    if config.backend == "onnxruntime":
        _compare_text_beside_bits(report, file)


def _compare_text_beside_bits(report: Report, file: str) -> None:
    """ONNX Runtime takes BF16 as bits in tensors of its own, which it does not mix with text."""
    tensors = (*report.config.input, *report.config.output)
    types = {item.data_type for item in tensors}
    if {pb.TYPE_BF16, pb.TYPE_STRING} <= types:
        report.error(
            "",
            f"{file} has tensors of text beside BF16, which ONNX Runtime cannot be given together",
            "export it with FP32 or FP16 in place of BF16",
            code=CODE,
        )


def with_values_of_model(
    report: Report, findings: list[Finding], signature: Signature
) -> list[Finding]:
    """The findings; those about a missing data_type or dims with the model's own as the repair."""
    known = {
        "input": {item.name: item for item in (*signature.inputs, *signature.optional_inputs)},
        "output": {item.name: item for item in signature.outputs},
    }
    return [_with_value(report, item, known) for item in findings]


def _with_value(
    report: Report, finding: Finding, known: Mapping[str, Mapping[str, TensorSignature]]
) -> Finding:
    match = _TENSOR.fullmatch(finding.field)
    if finding.code != "VAL-39" or match is None:
        return finding
    kind, index = match.group(1), int(match.group(2))
    tensor = known[kind].get(getattr(report.config, kind)[index].name)
    if tensor is None:
        return finding
    text = f"data_type: {tensor.datatype.config_name}"
    if "'dims'" in finding.message:
        dims = tensor.shape[1:] if report.config.max_batch_size > 0 else tensor.shape
        text = f"dims: {list(dims)}" if dims and tensor.is_rank_known else ""
    edit = report.mend.insert_inside(finding.field, text) if text else None
    repair = to_repair(edit, report.parsed.lines) if edit is not None else None
    return replace(finding, repair=repair)


def inputs_by_server(config: pb.ModelConfig) -> set[str]:
    """Model inputs that the server feeds: sequence controls, states, values about the batch."""
    sequence = config.sequence_batching
    names = {item.name for item in sequence.control_input}
    names |= {item.input_name for item in sequence.state}
    return names.union(*(item.target_name for item in config.batch_input))


def outputs_for_server(config: pb.ModelConfig) -> set[str]:
    """Model outputs that the server keeps: states. A config may list them as outputs, too."""
    return {item.output_name for item in config.sequence_batching.state}


def _compare_names(
    report: Report, kind: str, names: list[str], known: Sequence[TensorSignature], file: str
) -> None:
    available = [item.name for item in known]
    for index, name in enumerate(names):
        if not name or name in available:
            continue
        close = nearest(name, available)
        listed = ", ".join(f"'{item}'" for item in available)
        report.error(
            f"{kind}[{index}].name",
            f"unexpected inference {kind} '{name}': {file} has {kind}s {listed or '(none)'}",
            f"did you mean '{close}'?" if close else f"use a name that {file} has",
            code=CODE,
            edit=(
                report.mend.replace_value(f"{kind}[{index}].name", quoted(close))
                if close and close not in names
                else None
            ),
        )


def _compare_tensors(
    report: Report,
    kind: str,
    items: Sequence[pb.ModelInput] | Sequence[pb.ModelOutput],
    tensors: Sequence[TensorSignature],
    file: str,
) -> None:
    known = {tensor.name: tensor for tensor in tensors}
    # Cut into answers by the shape of an input, whatever shape the model gives them.
    scattered = {name for output in report.config.batch_output for name in output.target_name}
    for index, item in enumerate(items):
        tensor = known.get(item.name)
        if tensor is None:
            continue
        path = f"{kind}[{index}]"
        configured = BY_CONFIG_NUMBER.get(item.data_type)
        if configured is not None and configured != tensor.datatype:
            report.error(
                f"{path}.data_type",
                f"{kind} '{item.name}': the config says {configured.config_name}, {file} says "
                f"{tensor.datatype.config_name}",
                f"write data_type: {tensor.datatype.config_name}",
                code=CODE,
                edit=report.mend.replace_value(f"{path}.data_type", tensor.datatype.config_name),
            )
        if isinstance(item, pb.ModelInput) and item.allow_ragged_batch:
            _compare_flat(report, path, item, tensor, file)
        elif tensor.is_rank_known and item.name not in scattered:
            _compare_shape(report, path, item, tensor, file)


def _compare_flat(
    report: Report, path: str, item: pb.ModelInput, tensor: TensorSignature, file: str
) -> None:
    if tensor.is_rank_known and list(tensor.shape) != [-1]:
        report.error(
            f"{path}.allow_ragged_batch",
            f"input '{item.name}': a ragged input reaches the model as one row of elements, so it "
            f"must have shape [-1] there; {file} says {list(tensor.shape)}",
            "remove allow_ragged_batch, or export the model with one dimension of any size",
            code=CODE,
            edit=report.mend.remove(f"{path}.allow_ragged_batch"),
        )


def _compare_shape(
    report: Report,
    path: str,
    item: pb.ModelInput | pb.ModelOutput,
    tensor: TensorSignature,
    file: str,
) -> None:
    label = f"{path.partition('[')[0]} '{item.name}'"
    batching = report.config.max_batch_size > 0
    own = list(item.reshape.shape) if item.HasField("reshape") else list(item.dims)
    full = [-1, *own] if batching else own
    model = list(tensor.shape)
    if batching and not tensor.can_batch:
        report.error(
            "max_batch_size" if report.parsed.has("max_batch_size") else path,
            f"{label}: max_batch_size {report.config.max_batch_size} needs a first dimension of "
            f"-1, {file} says {model}",
            _unbatched_hint(model),
            code=CODE,
        )
        return
    if not item.dims or any(dim == 0 or dim < -1 for dim in own):
        return
    if len(full) == len(model) and all(
        want in (-1, got) for want, got in zip(model, full, strict=True)
    ):
        return
    if not model and all(dim == 1 for dim in full):
        return
    shape = f"{own}, that is {full} with the batch axis" if batching else f"{own}"
    wanted = model[1:] if batching else model
    hint = f"write dims: {wanted or [1]}"
    if not wanted and batching:
        hint += " with reshape { shape: [] }"
    if not batching and model[:1] == [-1] and full == model[1:]:
        hint = f"set max_batch_size above 0, or write dims: {model}"
    report.error(
        f"{path}.dims",
        f"{label}: the config says {shape} ({_dimensions(full)}); {file} says {model} "
        f"({_dimensions(model)})",
        hint,
        code=CODE,
        edit=(
            report.mend.replace_value(f"{path}.dims", str(wanted or [1]))
            if not item.HasField("reshape") and (wanted or not batching)
            else None
        ),
    )


def _dimensions(dims: Sequence[int]) -> str:
    return f"{len(dims)} dimension{'' if len(dims) == 1 else 's'}"


def _unbatched_hint(model: list[int]) -> str:
    if not model:
        return "set max_batch_size: 0, or export the model with a batch axis"
    return (
        f"set max_batch_size: 0 and write dims: {model}, or export the model with a dynamic first "
        f"axis"
    )


def _says(tensor: TensorSignature) -> str:
    return f"({tensor.datatype.name} {list(tensor.shape)})"
