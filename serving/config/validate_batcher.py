"""Rules about custom batching strategies and about rate-limiter resources (VAL-58, 59, 63)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from serving.config import batch_strategy
from serving.config.batch_strategy import STRATEGY
from serving.config.findings import Finding, Severity
from serving.config.protobuf import pb
from serving.config.report import Report
from serving.config.schema import map_path


def check_strategy(report: Report) -> None:
    config = report.config
    if STRATEGY not in config.parameters:
        _check_beside_model(report)
        return
    path = map_path("parameters", STRATEGY)
    name = config.parameters[STRATEGY].string_value
    problem, hint = _strategy_problem(report, name)
    if config.HasField("sequence_batching"):
        problem = "custom batching is not supported with the sequence batcher"
        hint = f"remove the parameter {STRATEGY}"
    edit = report.mend.remove(path, f"Remove {STRATEGY}")
    if problem:
        report.error(path, problem, hint, code="VAL-63", edit=edit)
    elif not batch_strategy.is_python(name):
        report.warning(
            path,
            f"the custom batching library '{name}' is not used: native libraries are not loaded "
            f"here, the dynamic batcher decides alone",
            f"write its five functions in Python, in a file {batch_strategy.FILE_NAME}",
            code="VAL-63",
        )
    elif not config.HasField("dynamic_batching"):
        report.warning(
            path,
            f"the custom batching strategy '{name}' has no effect: without dynamic_batching "
            "requests are never merged",
            "add dynamic_batching {}, or remove the parameter",
            code="VAL-63",
        )


def _check_beside_model(report: Report) -> None:
    """A strategy may lie in the model or version directory without being named."""
    directory = report.model_directory
    if directory is None or not report.config.HasField("dynamic_batching"):
        return
    for folder in (directory, *sorted(directory.glob("[0-9]*"))):
        path = folder / batch_strategy.FILE_NAME
        problem = batch_strategy.problem_of(path) if path.is_file() else ""
        if problem:
            report.error("dynamic_batching", problem, f"mend or remove {path.name}", code="VAL-63")
        library = path.with_suffix(".so")
        if library.is_file():
            report.warning(
                "dynamic_batching",
                f"the custom batching library '{library.name}' is not used: native libraries are "
                "not loaded here, the dynamic batcher decides alone",
                f"write its five functions in Python, in a file {path.name}",
                code="VAL-63",
            )


def _strategy_problem(report: Report, name: str) -> tuple[str, str]:
    directory = report.model_directory
    if directory is None or not name:
        return "", ""
    # Triton takes the path as it stands, or inside the model repository; it may not leave that.
    repository = directory.resolve().parent
    if not (repository / name).resolve().is_relative_to(repository):
        return (
            f"the custom batching library '{name}' lies outside the model repository",
            "put it into the model directory",
        )
    path = batch_strategy.named_file(directory, name)
    if path is None:
        return f"there is no custom batching library '{name}'", "give the path of the library"
    if batch_strategy.is_python(name):
        return batch_strategy.problem_of(path), "see the reference of the config for what each does"
    return "", ""


def validate_resources(
    configs: Mapping[str, pb.ModelConfig],
    limits: Mapping[tuple[str, int | None], int] | None = None,
) -> dict[str, list[Finding]]:
    """Rules between the rate-limiter resources of all models of a server.

    `limits` are the counts that the command line sets: (resource in lower case, device or None for
    all) -> count. Upper and lower case are one.
    Returns findings by model, without lines: fields name the places.
    """
    found: dict[str, list[Finding]] = {}
    scopes: dict[str, tuple[bool, str]] = {}
    for model, path, group, resource in _resources(configs):
        is_global = getattr(resource, "global")
        first, owner = scopes.setdefault(resource.name.lower(), (is_global, model))
        if first != is_global:
            found.setdefault(model, []).append(_both_scopes(resource.name, model, owner, path))
        for limit in _limits_for(resource, group, limits or {}):
            if limit < resource.count:
                found.setdefault(model, []).append(_too_few(resource, limit, path))
                break
    return found


def _resources(
    configs: Mapping[str, pb.ModelConfig],
) -> Iterator[tuple[str, str, pb.ModelInstanceGroup, pb.ModelRateLimiter.Resource]]:
    for model, config in configs.items():
        for index, group in enumerate(config.instance_group):
            for position, resource in enumerate(group.rate_limiter.resources):
                path = f"instance_group[{index}].rate_limiter.resources[{position}]"
                yield model, path, group, resource


def _limits_for(
    resource: pb.ModelRateLimiter.Resource,
    group: pb.ModelInstanceGroup,
    limits: Mapping[tuple[str, int | None], int],
) -> list[int]:
    # An instance on a CPU takes what belongs to device 0.
    devices = [None] if getattr(resource, "global") else [*(group.gpus or [0]), None]
    name = resource.name.lower()
    return [limits[name, gpu] for gpu in devices if (name, gpu) in limits][:1]


def _both_scopes(name: str, model: str, owner: str, path: str) -> Finding:
    where = "" if owner == model else f", in '{owner}' one way and in '{model}' the other"
    return Finding(
        Severity.ERROR,
        f"resource '{name}' is present as both global and device-specific resource{where}",
        "set global alike wherever the resource is named",
        path,
        code="VAL-58",
    )


def _too_few(resource: pb.ModelRateLimiter.Resource, limit: int, path: str) -> Finding:
    return Finding(
        Severity.ERROR,
        f"resource count for '{resource.name}' is limited to {limit}, which will prevent "
        f"scheduling of one or more instances; the minimum required count is {resource.count}",
        f"start with --rate-limit-resource={resource.name}:{resource.count}, or lower the count "
        "here",
        f"{path}.count",
        code="VAL-59",
    )
