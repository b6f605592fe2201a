"""Config beside TorchScript: names by convention, numbers of arguments and results, text and
states (PT-02..08).

Pure functions; any thread.
"""

from __future__ import annotations

import re

from serving.config.compare import CODE, inputs_by_server
from serving.config.mend import quoted
from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.signature_torch import Argument, ModuleSignature
from serving.config.torch_call_spec import ordinal_of

_TENSOR_KINDS = frozenset({"Tensor", "List[str]"})
_DRAFT = "# Drafted: names are the file's, data_type and dims are guesses. Write the true ones."
_RESULT_KINDS = re.compile(r"Tensor|List\[str\]")


def compare_module(report: Report, module: ModuleSignature, file: str) -> None:
    """What the config says against the forward method of a TorchScript module."""
    words = f"forward{_shown(module.arguments)} -> {module.result}"
    report.note("input", f"{file} says: {words}", code=CODE)
    if not report.config.input and not report.config.output:
        _offer_draft(report, module, file)
        return
    _compare_arguments(report, module, file)
    _compare_results(report, module, file)
    _compare_text(report, module, file)
    _compare_states(report)


def _offer_draft(report: Report, module: ModuleSignature, file: str) -> None:
    """Declarations with the names and numbers that the file tells; the rest is a guess."""
    inputs = [item for item in module.arguments if not item.is_optional]
    results = _RESULT_KINDS.findall(module.result)
    is_known = all(item.kind in _TENSOR_KINDS for item in inputs)
    if not inputs or not is_known or len(results) != module.result_count:
        return
    lines = [_DRAFT]
    lines += [_declared("input", item.name, item.kind) for item in inputs]
    lines += [_declared("output", f"OUTPUT__{i}", kind) for i, kind in enumerate(results)]
    report.warning(
        "input",
        f"{file} tells how many inputs and outputs there are, and not of which types and shapes",
        "let them be drafted, then write the true data_type and dims",
        code="AUT-07",
        edit=report.mend.append("\n".join(lines), "Draft the inputs and outputs"),
    )


def _declared(side: str, name: str, kind: str) -> str:
    tensor = "TYPE_STRING dims: [ 1 ]" if kind == "List[str]" else "TYPE_FP32 dims: [ -1 ]"
    return f"{side} {{ name: {quoted(name)} data_type: {tensor} }}"


def _compare_arguments(report: Report, module: ModuleSignature, file: str) -> None:
    arguments = module.arguments
    dictionaries = [item for item in arguments if item.kind.startswith("Dict[")]
    if dictionaries:
        if len(arguments) > 1:
            report.error(
                "input",
                f"{file}: forward{_shown(arguments)} takes a dictionary and other arguments",
                "let forward take one Dict[str, Tensor], or tensors only",
                code="PT-05",
            )
        return
    foreign = [item for item in arguments if item.kind not in _TENSOR_KINDS]
    for item in foreign:
        if not item.is_optional:
            report.error(
                "input",
                f"{file}: argument '{item.name}' of forward is {item.kind}, which no request can "
                f"carry",
                "let forward take tensors only",
                code=CODE,
            )
    names = [item.name for item in report.config.input]
    names += sorted(inputs_by_server(report.config))
    known = [item.name for item in arguments]
    if set(names) <= set(known):
        _compare_missing(report, arguments, set(names), file)
        return
    _compare_positions(report, "input", names, len(arguments), f"forward{_shown(arguments)}", file)
    required = sum(not item.is_optional for item in arguments)
    if len(names) < required:
        report.error(
            "input",
            f"{file}: forward{_shown(arguments)} needs {required} arguments, the config declares "
            f"{len(names)} inputs",
            f"declare an input for each, e.g. {', '.join(known)}",
            code=CODE,
        )


def _compare_missing(
    report: Report, arguments: tuple[Argument, ...], given: set[str], file: str
) -> None:
    missing = [item.name for item in arguments if not item.is_optional and item.name not in given]
    if missing:
        report.error(
            "input",
            f"{file}: forward{_shown(arguments)} needs '{missing[0]}', and the config does not "
            f"declare it",
            f"declare an input '{missing[0]}'",
            code=CODE,
        )


def _compare_results(report: Report, module: ModuleSignature, file: str) -> None:
    if module.result_count is None:
        report.warning(
            "output",
            f"{file}: forward returns {module.result}; a request gets Tensor, List[str] or a tuple "
            f"of those",
            "return a tensor or a tuple of tensors",
            code="PT-06",
        )
        return
    names = [item.name for item in report.config.output]
    says = f"forward returns {module.result}"
    _compare_positions(report, "output", names, module.result_count, says, file)


def _compare_positions(
    report: Report, kind: str, names: list[str], count: int, says: str, file: str
) -> None:
    """Names like INPUT__0 give the position; where one name does not, the order does.

    An input too many fails the load, an output too many the requests that want it.
    """
    found = report.error if kind == "input" else report.warning
    for index, position in enumerate(_positions(names)):
        if position >= count:
            found(
                f"{kind}[{index}]",
                f"{kind} '{names[index]}' is number {position}, but {file}: {says}",
                f"{kind}s are counted from 0; there are {count}",
                code=CODE,
            )


def _positions(names: list[str]) -> list[int]:
    ordinals = [ordinal_of(name) for name in names]
    has_ordinals = None not in ordinals
    return [
        ordinal if ordinal is not None and has_ordinals else index
        for index, ordinal in enumerate(ordinals)
    ]


def _compare_text(report: Report, module: ModuleSignature, file: str) -> None:
    """TYPE_STRING is List[str], everything else a Tensor (PT-08)."""
    names = [item.name for item in report.config.input]
    by_name = {item.name: item for item in module.arguments}
    for index, (item, position) in enumerate(
        zip(report.config.input, _positions(names), strict=True)
    ):
        if set(names) <= by_name.keys():
            argument = by_name[item.name]
        elif position < len(module.arguments):
            argument = module.arguments[position]
        else:
            continue
        is_text = item.data_type == pb.TYPE_STRING
        if argument.kind in _TENSOR_KINDS and is_text != (argument.kind == "List[str]"):
            report.error(
                f"input[{index}].data_type",
                f"input '{item.name}' is {pb.DataType.Name(item.data_type)}, and argument "
                f"'{argument.name}' of forward in {file} is {argument.kind}",
                "TYPE_STRING goes with List[str], all other types with Tensor",
                code="PT-08",
            )
    for kind in ("input", "output"):
        for index, tensor in enumerate(getattr(report.config, kind)):
            shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            if tensor.data_type == pb.TYPE_STRING and len(shape) > 1:
                report.error(
                    f"{kind}[{index}].dims",
                    f"{kind} '{tensor.name}' is TYPE_STRING with {len(shape)} dimensions; "
                    "PyTorch takes and gives text as a list",
                    "give it dims of one dimension",
                    code="PT-08",
                )


def _compare_states(report: Report) -> None:
    """PT-07."""
    for index, state in enumerate(report.config.sequence_batching.state):
        for field in ("input_name", "output_name"):
            name = getattr(state, field)
            if name and ordinal_of(name) is None:
                report.error(
                    f"sequence_batching.state[{index}].{field}",
                    f"state '{name}' does not follow the <name>__<index> naming convention",
                    f"PyTorch finds states by their position: name it e.g. {name}__{index + 1}",
                    code="PT-07",
                )


def _shown(arguments: tuple[Argument, ...]) -> str:
    return f"({', '.join(f'{item.name}: {item.kind}' for item in arguments)})"
