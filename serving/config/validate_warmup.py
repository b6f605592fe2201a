"""Rules about warm-up samples, as far as they can be told without running them."""

from __future__ import annotations

from math import prod

from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.schema import map_path
from serving.config.validate_model import escapes, file_size
from serving.datatypes import BY_CONFIG_NUMBER


def check_warmup(report: Report) -> None:
    if report.is_ensemble:
        return
    for index, sample in enumerate(report.config.model_warmup):
        path = f"model_warmup[{index}]"
        if sample.batch_size == 0:
            _note_skipped(report, path, sample)
            continue
        limit = report.config.max_batch_size
        if sample.batch_size > max(limit, 1):
            report.error(
                f"{path}.batch_size",
                f"warmup setting '{sample.name}': batch size {sample.batch_size}, max allowed is "
                f"{max(limit, 1)} (max_batch_size {limit})",
                f"use at most {max(limit, 1)}",
                code="VAL-62",
                edit=report.mend.replace_value(f"{path}.batch_size", str(max(limit, 1))),
            )
        for name, item in sample.inputs.items():
            _check_input(report, map_path(f"{path}.inputs", name), sample, name, item)
        _check_complete(report, path, sample)


def _note_skipped(report: Report, path: str, sample: pb.ModelWarmup) -> None:
    report.warning(
        path,
        f"warmup setting '{sample.name}' is skipped: its batch_size is 0",
        "write batch_size: 1, also for a model without batching",
        code="VAL-62",
        edit=report.mend.replace_value(f"{path}.batch_size", "1")
        or report.mend.insert_inside(path, "batch_size: 1"),
    )


def _check_complete(report: Report, path: str, sample: pb.ModelWarmup) -> None:
    for item in report.config.input:
        if item.name not in sample.inputs and not item.optional:
            report.error(
                path,
                f"warmup setting '{sample.name}' gives no input '{item.name}'",
                "add it under inputs",
                code="VAL-62",
            )


def _check_input(
    report: Report, path: str, sample: pb.ModelWarmup, name: str, item: pb.ModelWarmup.Input
) -> None:
    label = f"warmup setting '{sample.name}', input '{name}'"
    declared = {known.name: known for known in report.config.input}
    if declared and name not in declared and name not in _of_sequences(report.config):
        report.error(
            path,
            f"{label}: the model has no such input",
            f"inputs: {', '.join(declared)}",
            code="VAL-62",
        )
    if any(dim < 1 for dim in item.dims):
        report.error(
            f"{path}.dims",
            f"{label}: dims {list(item.dims)} must be fixed, without -1 or 0",
            "write the size to warm up with",
            code="VAL-62",
        )
    datatype = BY_CONFIG_NUMBER.get(item.data_type)
    if datatype is None:
        report.error(
            path,
            f"{label} must specify 'data_type'",
            "write the data_type of the model input",
            code="VAL-62",
            edit=(
                report.mend.insert_inside(path, f"data_type: {known.config_name}")
                if name in declared
                and (known := BY_CONFIG_NUMBER.get(declared[name].data_type)) is not None
                else None
            ),
        )
    choice = item.WhichOneof("input_data_type")
    if choice is None:
        report.error(
            path,
            f"{label} must say where its data comes from",
            "one of zero_data: true, random_data: true, input_data_file",
            code="VAL-62",
            edit=report.mend.insert_inside(path, "zero_data: true"),
        )
    elif choice == "input_data_file" and datatype is not None:
        _check_file(report, f"{path}.input_data_file", label, item, datatype.size)


def _of_sequences(config: pb.ModelConfig) -> set[str]:
    """Controls and states: a sample may list them (SCH-133)."""
    sequence = config.sequence_batching
    names = {item.name for item in sequence.control_input}
    return names | {item.input_name for item in sequence.state}


def _check_file(
    report: Report, path: str, label: str, item: pb.ModelWarmup.Input, element_size: int
) -> None:
    if report.model_directory is None:
        return
    name = item.input_data_file
    size = None if escapes(name) else file_size(report.model_directory / "warmup", name)
    needed = element_size * prod(item.dims)
    if size is None:
        report.error(
            path,
            f"{label}: no file 'warmup/{name}' in the model directory",
            "warm-up data lies in the directory 'warmup' of the model",
            code="VAL-62",
        )
    elif size < needed:
        report.error(
            path,
            f"{label}: 'warmup/{name}' has {size} bytes, {needed} are needed",
            "write the whole tensor into the file, or use zero_data: true",
            code="VAL-62",
        )
