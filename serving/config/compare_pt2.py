"""Config beside PT2 archives: names by convention, what the archive takes (PT-09..14).

Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from serving.config.compare import CODE, compare, inputs_by_server, outputs_for_server
from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.signature import Signature, TensorSignature
from serving.config.signature_pt2 import CompiledInput, CompiledProgram
from serving.config.torch_call_spec import CallSpec, ordinal_names, position, unknown_name
from serving.datatypes import BY_CONFIG_NUMBER


def named_as_configured(signature: Signature, config: pb.ModelConfig) -> Signature:
    """The signature of a PT2 archive with the names that the config uses for its tensors."""
    inputs = [item.name for item in config.input]
    outputs = [item.name for item in config.output]
    return replace(
        signature,
        inputs=_renamed(signature.inputs, [*inputs, *sorted(inputs_by_server(config))]),
        outputs=_renamed(signature.outputs, [*outputs, *sorted(outputs_for_server(config))]),
    )


def _renamed(tensors: tuple[TensorSignature, ...], names: list[str]) -> tuple[TensorSignature, ...]:
    found = list(tensors)
    forward_names = [item.name for item in tensors]
    for name in names:
        index = position(name, forward_names)
        if index is not None and index < len(found):
            found[index] = replace(found[index], name=name)
    return tuple(found)


def with_ordinal_names(signature: Signature) -> Signature:
    """The signature with INPUT__0, OUTPUT__0 and so on: what auto-complete writes."""
    return replace(
        signature,
        inputs=_numbered("INPUT", signature.inputs),
        outputs=_numbered("OUTPUT", signature.outputs),
    )


def _numbered(kind: str, tensors: tuple[TensorSignature, ...]) -> tuple[TensorSignature, ...]:
    names = ordinal_names(kind, len(tensors))
    return tuple(replace(item, name=name) for item, name in zip(tensors, names, strict=True))


def compare_exported(report: Report, signature: Signature, file: str) -> None:
    """The config beside an exported program."""
    assert signature.call_spec is not None
    compare_call(report, signature.call_spec, file)
    if report.config.max_batch_size > 0:
        _warn_of_fixed_batch(report, [item.shape for item in signature.inputs], file)
        # Batches of that size are served: the rest of the shape is what must fit.
        signature = replace(
            signature,
            inputs=tuple(map(_of_any_batch, signature.inputs)),
            outputs=tuple(map(_of_any_batch, signature.outputs)),
        )
    compare(report, named_as_configured(signature, report.config), file)


def _of_any_batch(tensor: TensorSignature) -> TensorSignature:
    return replace(tensor, shape=(-1, *tensor.shape[1:])) if tensor.shape else tensor


def _warn_of_fixed_batch(report: Report, shapes: Iterable[Sequence[int]], file: str) -> None:
    """PT-12."""
    sizes = {shape[0] for shape in shapes if shape and shape[0] >= 0}
    if sizes:
        report.warning(
            "max_batch_size",
            f"{file} was exported for batches of exactly {min(sizes)}: it refuses every other size",
            "export it with a dynamic first dimension (torch.export.Dim)",
            code="PT-12",
        )


def compare_call(report: Report, call_spec: CallSpec, file: str) -> None:
    """What holds for every PT2 archive, compiled or not (PT-12, PT-14)."""
    config = report.config
    if config.max_batch_size > 0 and call_spec.nested:
        report.error(
            "max_batch_size",
            f"{file}: '{call_spec.nested[0]}' lies in a nested structure, and batching is for "
            f"plain tensors only",
            "set max_batch_size: 0, or let forward take and return plain tensors",
            code="PT-14",
        )
    for kind, items in (("input", config.input), ("output", config.output)):
        for index, item in enumerate(items):
            if item.data_type == pb.DataType.TYPE_STRING:
                report.error(
                    f"{kind}[{index}].data_type",
                    f"{kind} '{item.name}' is TYPE_STRING, and {file} takes and returns tensors of "
                    f"numbers only",
                    "give each text a number before it is sent, e.g. in an ensemble",
                    code="PT-14",
                )


def compare_compiled(report: Report, program: CompiledProgram, file: str) -> None:
    """The config beside an archive of AOTInductor."""
    device = program.metadata.get("AOTI_DEVICE_KEY", "an unknown device")
    isa = program.metadata.get("AOTI_CPU_ISA", "")
    built = f"compiled for {device}{f', {isa}' if isa else ''}"
    call_spec = program.call_spec
    if call_spec is None:
        report.note("", f"{file} says: {built}", code=CODE)
        return
    words = f"({', '.join(call_spec.inputs)}) -> {', '.join(call_spec.outputs)}; {built}"
    report.note("input", f"{file} says: {words}", code=CODE)
    compare_call(report, call_spec, file)
    config = report.config
    inputs = [item.name for item in config.input]
    _compare_known(report, "input", inputs, call_spec.inputs, file)
    _compare_known(report, "output", [item.name for item in config.output], call_spec.outputs, file)
    given = {position(name, call_spec.inputs) for name in inputs} | {
        position(name, call_spec.inputs) for name in inputs_by_server(config)
    }
    for index, name in enumerate(call_spec.inputs):
        if index not in given and inputs:
            report.error(
                "input",
                f"{file} needs input 'INPUT__{index}', which is {name}, and the config does not "
                f"declare it",
                f"declare an input '{name}' or 'INPUT__{index}'",
                code=CODE,
            )
    if program.inputs is not None:
        if config.max_batch_size > 0:
            _warn_of_fixed_batch(report, [item.shape for item in program.inputs], file)
        _compare_expected(report, program.inputs, call_spec, file)


def _compare_known(
    report: Report, kind: str, names: list[str], forward_names: tuple[str, ...], file: str
) -> None:
    for index, name in enumerate(names):
        found = position(name, forward_names)
        if name and (found is None or found >= len(forward_names)):
            report.error(
                f"{kind}[{index}].name",
                f"{file}: {unknown_name(kind, name, forward_names)}",
                "use one of these names",
                code=CODE,
            )


def _compare_expected(
    report: Report, expected: tuple[CompiledInput, ...], call_spec: CallSpec, file: str
) -> None:
    has_batch_axis = report.config.max_batch_size > 0
    for index, item in enumerate(report.config.input):
        place = position(item.name, call_spec.inputs)
        if place is None or place >= len(expected):
            continue
        wanted, path = expected[place], f"input[{index}]"
        problem = wanted.problem_with(
            BY_CONFIG_NUMBER.get(item.data_type),
            item.reshape.shape if item.HasField("reshape") else item.dims,
            has_batch_axis=has_batch_axis,
        )
        if problem:
            report.error(
                path,
                f"input '{item.name}': {problem}; {file} was compiled for {wanted.described}",
                "write what the archive takes, or export the model anew",
                code=CODE,
            )
