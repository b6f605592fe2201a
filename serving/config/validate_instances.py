"""Rules about instance groups: devices, counts, profiles, rate-limiter resources."""

from __future__ import annotations

from serving.config.protobuf import pb
from serving.config.repair import Edit, merged
from serving.config.report import Report
from serving.config.validate_batcher import validate_resources

_GROUP = pb.ModelInstanceGroup


def check_instances(report: Report) -> None:
    config = report.config
    if report.is_ensemble:
        return
    if not config.instance_group:
        report.error(
            "instance_group",
            "model configuration must specify one or more instance groups",
            "e.g. instance_group { kind: KIND_AUTO count: 1 }",
            code="VAL-50",
        )
    for index, group in enumerate(config.instance_group):
        _check_group(report, f"instance_group[{index}]", group)
    _check_resources(report)


def _check_group(report: Report, path: str, group: pb.ModelInstanceGroup) -> None:
    label = f"instance group {group.name}"
    known = _GROUP.Kind.DESCRIPTOR.values_by_number.get(group.kind)
    kind = known.name if known is not None else str(group.kind)
    if group.kind == _GROUP.KIND_AUTO:
        report.error(
            f"{path}.kind",
            f"{label} has unexpected kind KIND_AUTO: it has not been resolved to a device",
            "write KIND_CPU or KIND_GPU",
            code="VAL-55",
        )
    elif group.kind in (_GROUP.KIND_CPU, _GROUP.KIND_MODEL) and group.gpus:
        report.error(
            f"{path}.gpus",
            f"{label} has kind {kind} but specifies one or more GPUs: {list(group.gpus)}",
            "remove gpus, or use KIND_GPU where those GPUs exist",
            code="VAL-51",
            edit=report.mend.remove(f"{path}.gpus"),
        )
    elif group.kind == _GROUP.KIND_GPU:
        _check_gpus(report, path, label, group)
    if report.parsed.has(f"{path}.count") and _given_count(report, path) < 1:
        report.warning(
            f"{path}.count",
            f"count {_given_count(report, path)} is not a number of instances; the default is used",
            "write count: 1 or more",
            code="CFG-062",
            edit=report.mend.replace_value(f"{path}.count", "1"),
        )
    _check_profiles(report, path, label, group)


def _given_count(report: Report, path: str) -> int:
    """The count as written: the completed config holds the default already."""
    line, column = report.parsed.value_position(f"{path}.count")
    lines = report.parsed.text.split("\n")
    digits = lines[line - 1][column - 1 :].split("}")[0].split() if line else []
    try:
        return int(digits[0].rstrip(",;>"), 0) if digits else 1
    except ValueError:
        return 1


def _check_gpus(report: Report, path: str, label: str, group: pb.ModelInstanceGroup) -> None:
    count = report.available.gpu_count
    if count is None:
        return
    if count == 0 and report.is_tensorrt:
        report.error(
            f"{path}.kind",
            f"{label} has kind KIND_GPU but no GPUs are available",
            "a TensorRT engine runs on GPUs only: serve it where there is one, or serve its ONNX "
            "file with onnxruntime",
            code="VAL-52",
        )
        return
    if count == 0:
        report.error(
            f"{path}.kind",
            f"{label} has kind KIND_GPU but no GPUs are available",
            "use KIND_CPU, or KIND_AUTO to take a GPU only where there is one",
            code="VAL-52",
            edit=_on_cpu(report, path),
        )
        return
    for position, gpu in enumerate(group.gpus):
        if not 0 <= gpu < count:
            valid = ", ".join(str(item) for item in range(count))
            report.error(
                f"{path}.gpus[{position}]",
                f"{label} specifies invalid or unsupported gpu id {gpu}; valid GPU ids are {valid}",
                "ids count the GPUs that the worker sees, from 0",
                code="VAL-53",
                edit=(
                    report.mend.remove(f"{path}.gpus[{position}]", f"Remove GPU {gpu}")
                    if len(group.gpus) > 1
                    else None
                ),
            )


def _on_cpu(report: Report, path: str) -> Edit | None:
    """KIND_CPU, which takes no gpus, for KIND_GPU."""
    kind = report.mend.replace_value(f"{path}.kind", "KIND_CPU")
    gpus = report.mend.remove(f"{path}.gpus")
    if kind is None or (gpus is None and report.parsed.has(f"{path}.gpus")):
        return None
    return merged(report.parsed.text, [edit for edit in (kind, gpus) if edit], "Write KIND_CPU")


def _check_profiles(report: Report, path: str, label: str, group: pb.ModelInstanceGroup) -> None:
    for position, profile in enumerate(group.profile):
        place = f"{path}.profile[{position}]"
        if not report.is_tensorrt:
            report.error(
                place,
                f"{label}: a profile is only supported for TensorRT models",
                "remove profile",
                code="VAL-54",
                edit=report.mend.remove(place, f"Remove profile {profile}"),
            )
        elif not profile.isdecimal():
            report.error(
                place,
                f"{label}: profile '{profile}' must be a non-negative integer",
                'profiles are counted from 0, e.g. profile: ["0"]',
                code="VAL-54",
            )


def _check_resources(report: Report) -> None:
    found = validate_resources({report.config.name: report.config})
    for findings in found.values():
        report.findings += [report.parsed.placed(item) for item in findings]
