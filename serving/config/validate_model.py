"""Rules about the model as a whole: name, backend, versions, cache, metrics, file names."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from serving.config.backend_files import ENSEMBLE, backend_of_filename, platforms_of
from serving.config.ignored import check_ignored
from serving.config.mend import quoted
from serving.config.repair import Edit
from serving.config.report import Report
from serving.config.schema import map_path
from serving.config.signature_trees import FILENAMES as TREE_FILENAMES
from serving.config.suggest import nearest

_PAIRED_BACKENDS = frozenset({"tensorrt", "onnxruntime", "pytorch", "tensorflow"})
_DECLARED_BY_CONFIG = {
    "model.dali": 'backend: "dali"',
    "model.json": 'backend: "vllm"',
} | {
    filename: f'backend: "fil"\nparameters {{ key: "model_type" value {{ string_value: '
    f"{quoted(model_type)} }} }}"
    for model_type, filename in TREE_FILENAMES.items()
}
"""File -> what a config must say beside it: no server takes such a file for granted."""


def check_model(report: Report, directory_name: str) -> None:
    _check_name(report, directory_name)
    _check_backend(report)
    _check_versions(report)
    _check_cache(report)
    _check_metrics(report)
    _check_file_names(report)
    check_ignored(report)


def _check_name(report: Report, directory_name: str) -> None:
    name = report.config.name
    if not name:
        report.error(
            "name",
            "model configuration must specify 'name'",
            "leave the field out to use the directory name",
            code="VAL-01",
        )
    elif name != directory_name:
        report.error(
            "name",
            f"the model directory name must equal the model name: the directory is "
            f"'{directory_name}', 'name' is '{name}'",
            f"remove the 'name' line, or rename the directory to '{name}'",
            code="VAL-56",
            edit=report.mend.replace_value("name", quoted(directory_name)),
        )


def _check_backend(report: Report) -> None:
    backend, platform = report.config.backend, report.config.platform
    max_batch_size = report.config.max_batch_size
    if platform == ENSEMBLE:
        if backend:
            report.error(
                "backend",
                f"platform type ensemble needs an empty backend, got '{backend}'",
                "remove 'backend'",
                code="VAL-03",
                edit=report.mend.remove("backend"),
            )
    elif not backend:
        report.error(
            "platform",
            f"unexpected platform type '{platform}': no backend is given and none can be told "
            f"from the model files",
            _backend_hint(report),
            code="VAL-02",
            edit=_backend_edit(report),
        )
    elif backend in _PAIRED_BACKENDS and platform not in platforms_of(backend):
        report.error(
            "platform",
            f"unexpected 'platform' and 'backend' pair, got '{platform}' and '{backend}'",
            f"leave 'platform' out, or use {' or '.join(platforms_of(backend))}",
            code="VAL-04",
            edit=report.mend.remove("platform"),
        )
    known = report.available.backends
    if backend and known is not None and backend not in known:
        report.error(
            "backend",
            f"unable to find backend library for backend '{backend}'",
            f"backends here: {', '.join(sorted(known))}",
            code="VAL-57",
            edit=_nearest_backend(report, known),
        )
    if max_batch_size < 0:
        report.error(
            "max_batch_size",
            f"'max_batch_size' must be non-negative, got {max_batch_size}",
            "use 0 for a model without a batch axis",
            code="VAL-05",
            edit=report.mend.replace_value("max_batch_size", "0"),
        )


def _candidate(report: Report) -> tuple[str, Path] | None:
    """A file of some version that tells by its extension which backend it is for."""
    if report.model_directory is None:
        return None
    for version in sorted(report.model_directory.glob("[0-9]*")):
        for path in sorted(version.glob("*")):
            backend = backend_of_filename(path.name)
            if backend:
                return backend, path
    return None


def _declaring(report: Report) -> tuple[Path, str] | None:
    """A file under the name that a backend looks for, and the config that says which backend."""
    if report.model_directory is None:
        return None
    for version in sorted(report.model_directory.glob("[0-9]*")):
        for filename, lines in _DECLARED_BY_CONFIG.items():
            if (version / filename).is_file():
                return version / filename, lines
    return None


def _backend_hint(report: Report) -> str:
    candidate = _candidate(report)
    declaring = _declaring(report) if candidate is None else None
    if declaring is not None:
        path, lines = declaring
        return f"{path.parent.name}/{path.name} is a file for {lines.splitlines()[0]}"
    if candidate is None:
        return 'set backend, e.g. backend: "onnxruntime"'
    backend, path = candidate
    return (
        f'set backend: "{backend}" and default_model_filename: "{path.name}", '
        f"which lies in {path.parent.name}/"
    )


def _backend_edit(report: Report) -> Edit | None:
    if any(report.parsed.has(field) for field in ("backend", "platform", "default_model_filename")):
        return None
    candidate = _candidate(report)
    if candidate is None:
        declaring = _declaring(report)
        return (
            None
            if declaring is None
            else report.mend.append(
                declaring[1], f"Say that {declaring[0].name} is for {declaring[1].splitlines()[0]}"
            )
        )
    backend, path = candidate
    return report.mend.append(
        f"backend: {quoted(backend)}\ndefault_model_filename: {quoted(path.name)}",
        f"Use {path.name} with backend {backend}",
    )


def _nearest_backend(report: Report, known: frozenset[str]) -> Edit | None:
    close = nearest(report.config.backend, known)
    return report.mend.replace_value("backend", quoted(close)) if close else None


def _check_versions(report: Report) -> None:
    policy = report.config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice is None:
        report.error(
            "version_policy",
            "model configuration must specify a version policy",
            "e.g. version_policy { latest { num_versions: 1 } }",
            code="VAL-06",
        )
    elif choice == "latest" and policy.latest.num_versions == 0:
        report.error(
            "version_policy.latest.num_versions",
            "at least one version must be available: latest { num_versions: 0 } serves none",
            "use num_versions: 1 or more",
            code="REP-006",
            edit=report.mend.replace_value("version_policy.latest.num_versions", "1"),
        )
    elif choice == "specific":
        if not policy.specific.versions:
            report.error(
                "version_policy.specific",
                "at least one version must be available: specific lists none",
                "list them: specific { versions: [1] }",
                code="REP-006",
            )
        for index, version in enumerate(policy.specific.versions):
            if version < 0:
                report.error(
                    f"version_policy.specific.versions[{index}]",
                    f"a version is an integer >= 0, got {version}",
                    "list the numbers of version directories",
                    code="REP-042",
                    edit=report.mend.remove(f"version_policy.specific.versions[{index}]"),
                )


def _check_cache(report: Report) -> None:
    config = report.config
    if not config.response_cache.enable:
        return
    if config.HasField("sequence_batching"):
        report.error(
            "response_cache.enable",
            "Response Cache does not support a model with sequence batching",
            "remove response_cache",
            code="VAL-14",
            edit=report.mend.remove("response_cache"),
        )
    if config.model_transaction_policy.decoupled:
        report.error(
            "response_cache.enable",
            "Response Cache does not support a model with the decoupled transaction policy",
            "remove response_cache, or model_transaction_policy",
            code="VAL-15",
            edit=report.mend.remove("response_cache"),
        )


FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
"""The histogram whose buckets a config may set; shown with --metrics-config."""


def _check_metrics(report: Report) -> None:
    for index, control in enumerate(report.config.model_metrics.metric_control):
        path = f"model_metrics.metric_control[{index}]"
        missing = ""
        if not control.HasField("metric_identifier"):
            missing = "metric_identifier"
        elif not control.metric_identifier.family:
            missing = "metric_identifier.family"
        elif not control.HasField("histogram_options"):
            missing = "histogram_options"
        elif not control.histogram_options.buckets:
            missing = "histogram_options.buckets"
        if missing:
            report.error(
                path,
                f"model metrics must specify '{missing}'",
                "name a metric family and its buckets, or remove the entry",
                code="VAL-38",
                edit=report.mend.remove(path),
            )
        elif control.metric_identifier.family != FIRST_RESPONSE:
            report.note(
                path,
                f"'{control.metric_identifier.family}' is no histogram of this server: buckets can "
                f"be set for '{FIRST_RESPONSE}'",
                code="CFG-023",
            )


def _check_file_names(report: Report) -> None:
    config = report.config
    named = [("default_model_filename", config.default_model_filename)]
    named += [
        (map_path("cc_model_filenames", key), name)
        for key, name in config.cc_model_filenames.items()
    ]
    named.append(("runtime", config.runtime))
    for path, name in named:
        if name and escapes(name):
            report.error(
                path,
                f"'{name}' lies outside model directory",
                "give a path inside the version directory",
                code="REP-012",
            )
    for index, output in enumerate(config.output):
        if output.label_filename:
            _check_labels(report, f"output[{index}].label_filename", output.label_filename)


def _check_labels(report: Report, path: str, name: str) -> None:
    if escapes(name):
        report.error(
            path,
            f"label file '{name}' lies outside model directory",
            "put it into the model directory",
            code="REP-008",
        )
    elif report.model_directory is not None and not (report.model_directory / name).is_file():
        report.error(
            path,
            f"label file '{name}' is not in the model directory",
            "one label a line, the line number is the class index",
            code="REP-008",
            edit=_label_edit(report, path, name),
        )


def _label_edit(report: Report, path: str, name: str) -> Edit | None:
    """Name the one text file that lies there instead."""
    directory = report.model_directory
    files = [item.name for item in directory.glob("*.txt")] if directory is not None else []
    close = nearest(name, files) or (files[0] if len(files) == 1 else "")
    return report.mend.replace_value(path, quoted(close)) if close else None


def escapes(name: str) -> bool:
    """Does a relative file name lead out of the directory it is meant for?"""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or os.pardir in path.parts or "\0" in name


def file_size(directory: Path, name: str) -> int | None:
    """Bytes of a plain file inside `directory`; None when there is no such file."""
    try:
        path = directory / name
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None
