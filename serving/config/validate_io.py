"""Rules about inputs and outputs: name, type, dims, reshape, shape tensors, ragged batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from serving.config.protobuf import pb
from serving.config.repair import Edit, merged
from serving.config.report import Report

_RAGGED_TYPES = (pb.DataType.TYPE_INT32, pb.DataType.TYPE_FP32)


def check_io(report: Report, *, strict: bool) -> None:
    config = report.config
    for index, item in enumerate(config.input):
        path = f"input[{index}]"
        _check_tensor(report, "model input", path, item)
        _check_format(report, path, item)
    for index, output in enumerate(config.output):
        _check_tensor(report, "model output", f"output[{index}]", output)
    _check_unique(report, "input", [item.name for item in config.input])
    _check_unique(report, "output", [item.name for item in config.output])
    _check_missing(report, strict)
    _check_batch_axis(report)
    _check_batch_inputs(report)
    _check_batch_outputs(report)


def _check_tensor(
    report: Report, kind: str, path: str, item: pb.ModelInput | pb.ModelOutput
) -> None:
    label = f"{kind} '{item.name}'" if item.name else f"{kind} {path}"
    if not item.name:
        report.error(
            path, f"{label} must specify 'name'", "name it as the model does", code="VAL-39"
        )
    if item.data_type == pb.DataType.TYPE_INVALID:
        report.error(
            path, f"{label} must specify 'data_type'", "e.g. data_type: TYPE_FP32", code="VAL-39"
        )
    if not item.dims:
        report.error(path, f"{label} must specify 'dims'", _scalar_hint(report), code="VAL-39")
    for index, dim in enumerate(item.dims):
        if dim == 0 or dim < -1:
            report.error(
                f"{path}.dims[{index}]",
                f"{label}: a dimension must be an integer >= 1, or -1 for a variable size; "
                f"got {dim}",
                "leave the batch axis out, and write -1 where any size goes",
                code="VAL-40",
                edit=report.mend.replace_value(f"{path}.dims[{index}]", "-1", "Write -1: any size"),
            )
    if item.HasField("reshape"):
        _check_reshape(report, label, path, item)
    _check_tensorrt_only(report, label, path, item)


def _scalar_hint(report: Report) -> str:
    if report.config.max_batch_size > 0:
        return "for one value per item write dims: [1] with reshape { shape: [] }"
    return "for a scalar write dims: [1]"


def _check_reshape(
    report: Report, label: str, path: str, item: pb.ModelInput | pb.ModelOutput
) -> None:
    dims, shape = list(item.dims), list(item.reshape.shape)
    for index, dim in enumerate(shape):
        if dim == 0 or dim < -1:
            report.error(
                f"{path}.reshape.shape[{index}]",
                f"{label}: reshape dimensions must be integers >= 1, or -1; got {dim}",
                "write the shape that the model itself takes",
                code="VAL-41",
            )
            return
    if any(dim == 0 or dim < -1 for dim in dims) or not dims:
        return
    place = f"{path}.reshape"
    if not shape and report.config.max_batch_size == 0:
        report.error(
            place,
            f"{label}: an empty reshape needs max_batch_size > 0; scalar tensors are not "
            f"supported without batching",
            "remove reshape, or set max_batch_size",
            code="VAL-42",
            edit=report.mend.remove(place),
        )
        return
    if dims.count(-1) != shape.count(-1):
        report.error(
            place,
            f"{label}: dims {dims} and reshape {shape} have a different number of variable-size "
            f"dimensions",
            "use -1 equally often in both",
            code="VAL-44",
        )
    elif _runs(dims) != _runs(shape):
        report.error(
            place,
            f"{label}: dims {dims} and reshape {shape} have different size",
            "both must hold the same number of elements, also between the -1 dimensions",
            code="VAL-43",
        )


def _runs(shape: Sequence[int]) -> list[int]:
    """Products of the runs between wildcards."""
    products = [1]
    for is_wild, run in groupby(shape, key=lambda dim: dim == -1):
        if is_wild:
            products += [1] * len(list(run))
        else:
            products[-1] *= prod(run)
    return products


def _check_tensorrt_only(
    report: Report, label: str, path: str, item: pb.ModelInput | pb.ModelOutput
) -> None:
    if item.is_shape_tensor and not report.is_tensorrt:
        report.error(
            f"{path}.is_shape_tensor",
            f"{label}: shape tensors are only supported for TensorRT models",
            "remove is_shape_tensor",
            code="VAL-46",
            edit=report.mend.remove(f"{path}.is_shape_tensor"),
        )
    if item.is_non_linear_format_io:
        where = f"{path}.is_non_linear_format_io"
        if not report.is_tensorrt:
            report.error(
                where,
                f"{label}: a non-linear format is only supported for TensorRT models",
                "remove is_non_linear_format_io",
                code="VAL-46",
                edit=report.mend.remove(where),
            )
        if len(item.dims) != 3:
            report.error(
                where,
                f"{label}: a non-linear format requires 3 dims, got {len(item.dims)}",
                "remove is_non_linear_format_io, or give 3 dims",
                code="VAL-47",
                edit=report.mend.remove(where),
            )


def _check_format(report: Report, path: str, item: pb.ModelInput) -> None:
    formats = (pb.ModelInput.FORMAT_NHWC, pb.ModelInput.FORMAT_NCHW)
    if item.format in formats and len(item.dims) != 3:
        report.error(
            f"{path}.format",
            f"model input '{item.name}': FORMAT_NHWC and FORMAT_NCHW require 3 dims, got "
            f"{list(item.dims)}",
            "remove format, or give height, width and channels without the batch axis",
            code="VAL-45",
            edit=report.mend.remove(f"{path}.format"),
        )


def _check_unique(report: Report, kind: str, names: list[str]) -> None:
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        if not name:
            continue
        first = seen.setdefault(name, index)
        if first != index:
            report.error(
                f"{kind}[{index}].name" if report.parsed.has(f"{kind}[{index}].name") else kind,
                f"model {kind} '{name}' is declared twice: {kind}[{first}] and {kind}[{index}]",
                "names must differ",
                code="C04",
            )


def _check_missing(report: Report, strict: bool) -> None:
    for kind in ("input", "output"):
        if getattr(report.config, kind) or report.is_ensemble:
            continue
        if strict:
            report.warning(
                kind,
                f"no {kind} is declared, and auto-complete is off",
                f"declare it: {kind} {{ name: ... data_type: ... dims: [...] }}",
                code="VAL-39",
            )
        elif report.config.backend == "pytorch":
            report.error(
                kind,
                f"no {kind} is declared, and a PyTorch model file does not tell them",
                f"declare it: {kind} {{ name: ... data_type: ... dims: [...] }}",
                code="AUT-07",
            )
        else:
            report.note(kind, f"no {kind} is declared: the model itself must tell", code="AUT-03")


def _check_batch_axis(report: Report) -> None:
    """The batch axis is implied: dims that repeat it give requests one axis too many."""
    config = report.config
    tensors = [*config.input, *config.output]
    if config.max_batch_size <= 0 or not config.input or not config.output:
        return
    if not all(len(item.dims) > 1 and item.dims[0] == -1 for item in tensors):
        return
    for index, item in enumerate(config.input):
        dims = list(item.dims)
        report.warning(
            f"input[{index}].dims",
            f"model input '{item.name}': dims {dims} start with -1 while max_batch_size is "
            f"{config.max_batch_size}, so a request needs shape {[-1, *dims]}",
            f"if the -1 is the batch axis, write dims: {dims[1:]}",
            code="CFG-033",
            edit=_without_batch_axis(report),
        )


def _without_batch_axis(report: Report) -> Edit | None:
    """Take the first -1 out of the dims of every tensor at once."""
    edits: list[Edit] = []
    for kind in ("input", "output"):
        for index, item in enumerate(getattr(report.config, kind)):
            edit = report.mend.replace_value(f"{kind}[{index}].dims", str(list(item.dims)[1:]))
            if edit is None:
                return None
            edits.append(edit)
    return merged(report.parsed.text, edits, "Remove the batch axis from every dims")


def _check_batch_inputs(report: Report) -> None:
    inputs = {item.name for item in report.config.input}
    for index, item in enumerate(report.config.batch_input):
        path = f"batch_input[{index}]"
        if len(item.source_input) != 1:
            report.error(
                path,
                f"batch input expects 1 source input, got {len(item.source_input)}",
                "name one input in source_input",
                code="VAL-48",
            )
        if item.data_type not in _RAGGED_TYPES:
            report.error(
                f"{path}.data_type",
                "batch input data type must be TYPE_INT32 or TYPE_FP32",
                "write data_type: TYPE_INT32",
                code="VAL-48",
                edit=report.mend.replace_value(f"{path}.data_type", "TYPE_INT32")
                or report.mend.insert_inside(path, "data_type: TYPE_INT32"),
            )
        for position, name in enumerate(item.source_input):
            if name not in inputs:
                report.error(
                    f"{path}.source_input[{position}]",
                    f"batch input has unknown source input '{name}'",
                    f"inputs: {', '.join(sorted(inputs))}",
                    code="VAL-48",
                )


def _check_batch_outputs(report: Report) -> None:
    inputs = {item.name for item in report.config.input}
    outputs = {item.name for item in report.config.output}
    taken: set[str] = set()
    for index, item in enumerate(report.config.batch_output):
        path = f"batch_output[{index}]"
        if len(item.source_input) != 1:
            report.error(
                path,
                f"batch output expects 1 source input, got {len(item.source_input)}",
                "name one input in source_input",
                code="VAL-49",
            )
        for position, name in enumerate(item.source_input):
            if name not in inputs:
                report.error(
                    f"{path}.source_input[{position}]",
                    f"batch output has unknown source input '{name}'",
                    f"inputs: {', '.join(sorted(inputs))}",
                    code="VAL-49",
                )
        for position, name in enumerate(item.target_name):
            problem = "" if name in outputs else "unknown"
            problem = problem or ("duplicate" if name in taken else "")
            taken.add(name)
            if problem:
                report.error(
                    f"{path}.target_name[{position}]",
                    f"batch output has {problem} target output name '{name}'",
                    f"outputs, each at most once: {', '.join(sorted(outputs))}",
                    code="VAL-49",
                )
