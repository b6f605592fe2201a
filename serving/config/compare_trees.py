"""Config beside the file of a tree model: parameters, features, what `output__0` holds (FIL-).

Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.config.compare import CODE
from serving.config.mend import quoted
from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.signature import Signature
from serving.config.signature_trees import FILENAMES, TreeSignature
from serving.config.tree_outputs import (
    INPUT,
    OUTPUT,
    SHAP_OUTPUT,
    WITHOUT_EFFECT,
    TreeParameters,
    other_type,
    output_width,
    read_tree_parameters,
    shap_problem,
    tensors_of,
)
from serving.errors import InvalidArgumentError


def parameters_of(config: pb.ModelConfig) -> TreeParameters | None:
    """None where a value is none that the backend takes."""
    try:
        return read_tree_parameters(_texts(config))
    except InvalidArgumentError:
        return None


def tree_tensors(config: pb.ModelConfig, trees: TreeSignature) -> Signature | None:
    """Inputs and outputs of such a model; None where the parameters ask for what it has not."""
    parameters = parameters_of(config)
    try:
        return tensors_of(trees, parameters) if parameters is not None else None
    except InvalidArgumentError:
        return None


def check_tree_config(report: Report, versions: Sequence[int]) -> None:
    """What holds for every model of the fil backend, whatever its file says."""
    config = report.config
    for name in sorted(WITHOUT_EFFECT.keys() & _texts(config).keys()):
        path = f"parameters[{quoted(name)}]"
        report.note(path, f"'{name}' has no effect: {WITHOUT_EFFECT[name]}", code="FIL-02")
    try:
        _check_type(report, read_tree_parameters(_texts(config)), versions)
    except InvalidArgumentError as error:
        report.error("parameters", error.message, code="FIL-02")
    for kind, wanted in (("input", INPUT), ("output", OUTPUT)):
        for index, item in enumerate(getattr(config, kind)):
            if item.name != wanted and (kind, item.name) != ("output", SHAP_OUTPUT):
                report.error(
                    f"{kind}[{index}].name",
                    f"models of the fil backend have one {kind}, '{wanted}'",
                    f"write name: {quoted(wanted)}",
                    code="FIL-03",
                    edit=report.mend.replace_value(f"{kind}[{index}].name", quoted(wanted)),
                )


def _check_type(report: Report, parameters: TreeParameters, versions: Sequence[int]) -> None:
    if report.config.default_model_filename or report.model_directory is None:
        return
    for version in versions:
        other = other_type(report.model_directory / str(version), parameters)
        if not other:
            continue
        text = f'parameters {{ key: "model_type" value {{ string_value: "{other}" }} }}'
        place = 'parameters["model_type"].string_value'
        is_given = "model_type" in report.config.parameters
        report.error(
            "parameters",
            f"{version}/{FILENAMES[other]} is a model of type {other}, and model_type is "
            f"{parameters.model_type}",
            f"write {text}",
            code="FIL-01",
            edit=report.mend.replace_value(place, quoted(other))
            if is_given
            else report.mend.append(text),
        )
        return


def compare_trees(report: Report, trees: TreeSignature, file: str) -> None:
    """FIL takes one row of features for each item of the batch."""
    objective = f", objective {trees.objective}" if trees.objective else ""
    classes = f"{trees.classes} classes" if trees.classes > 1 else "one score"
    words = f"{trees.features} features, {classes}{objective}"
    report.note("input", f"{file} says: {words}", code=CODE)
    for index, item in enumerate(report.config.input):
        dims = list(item.reshape.shape if item.HasField("reshape") else item.dims)
        if dims and dims[-1] not in (-1, trees.features):
            report.error(
                f"input[{index}].dims",
                f"input '{item.name}': the config says {dims}, {file} was trained on "
                f"{trees.features} features",
                f"write dims: [{trees.features}]",
                code=CODE,
                edit=report.mend.replace_value(f"input[{index}].dims", f"[{trees.features}]"),
            )
    parameters = parameters_of(report.config)
    if parameters is not None:
        _compare_output(report, trees, parameters, file)


def _compare_output(
    report: Report, trees: TreeSignature, parameters: TreeParameters, file: str
) -> None:
    try:
        width = output_width(trees, parameters)
    except InvalidArgumentError as error:
        report.error("parameters", f"{file}: {error.message}", code="FIL-02")
        return
    for index, output in enumerate(report.config.output):
        dims = list(output.reshape.shape if output.HasField("reshape") else output.dims)
        wanted = tells = ""
        if output.name == SHAP_OUTPUT:
            rank = max((len(item.dims) for item in report.config.input), default=1)
            is_table = not report.config.max_batch_size and rank > 1
            wanted = shap_problem(dims[1:] if is_table else dims, trees)
            tells = "what each feature adds, and what none adds"
        elif any(dim not in (-1, 1, width) for dim in dims) or (width > 1 and dims[-1:] == [1]):
            wanted, tells = f"write dims: [{width}]", _values(trees, width)
        if wanted:
            report.error(
                f"output[{index}].dims",
                f"output '{output.name}': the config says {dims}, {file} tells {tells}",
                wanted,
                code=CODE,
                edit=report.mend.replace_value(
                    f"output[{index}].dims", wanted.removeprefix("write dims: ")
                ),
            )


def _values(trees: TreeSignature, width: int) -> str:
    if width == 1:
        return "one value for each row"
    return f"{width} targets" if trees.targets > 1 else f"{width} classes"


def _texts(config: pb.ModelConfig) -> Mapping[str, str]:
    return {name: item.string_value for name, item in config.parameters.items()}
