"""What lies in a model repository: model directories, version directories, and what is ignored.

Reads directory listings only; any thread. The rules are REP-001..013.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from serving.config.findings import Finding, Severity
from serving.errors import InvalidArgumentError

CONFIG_NAME = "config.pbtxt"
RESERVED_DIRECTORIES = frozenset({"warmup", "initial_state", "configs"})
_MAX_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class IgnoredEntry:
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """One model as it lies on disk."""

    name: str
    path: Path
    versions: list[int]
    """Ascending."""
    ignored: list[IgnoredEntry] = field(default_factory=list)
    """What looks like a version and is none."""
    config_path: Path | None = None
    files: list[str] = field(default_factory=list)
    """Plain files directly in the model directory."""
    model_files: dict[int, list[str]] = field(default_factory=dict)
    """Version -> names of the entries of its directory."""


def scan_repository(root: Path) -> list[ModelDirectory]:
    """Every model of a repository, by name. Hidden directories are not models.

    Raises: InvalidArgumentError when `root` is not a directory.
    """
    try:
        with os.scandir(root) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and is_directory(entry)
            ]
    except OSError as error:
        raise InvalidArgumentError(
            f"model repository '{root}' is not a valid directory: {error.strerror}"
        ) from error
    return [scan_model(root / name) for name in sorted(names)]


def scan_model(path: Path) -> ModelDirectory:
    """One model directory. A directory that vanishes meanwhile comes back empty."""
    versions: list[int] = []
    ignored: list[IgnoredEntry] = []
    files: list[str] = []
    for name, is_directory in _entries(path):
        if not is_directory:
            files.append(name)
            reason = f"'{name}' is a file; a version is a directory" if name.isdecimal() else ""
        elif name in RESERVED_DIRECTORIES:
            continue
        else:
            reason = version_problem(name)
            if not reason:
                versions.append(int(name))
        if reason:
            ignored.append(IgnoredEntry(name, reason))
    versions.sort()
    config_path = path / CONFIG_NAME if CONFIG_NAME in files else None
    model_files = {
        version: [name for name, _ in _entries(path / str(version))] for version in versions
    }
    return ModelDirectory(path.name, path, versions, ignored, config_path, files, model_files)


def version_problem(name: str) -> str:
    """Why a directory name is not a version, or "" when it is one."""
    if not (name.isascii() and name.isdecimal()):
        return f"'{name}' is not a version: a version directory is named by an integer"
    if name.startswith("0") and len(name) > 1:
        bare = name.lstrip("0") or "0"
        return f"'{name}' is ignored because of its leading zero; name it '{bare}'"
    if int(name) > _MAX_VERSION:
        return f"'{name}' is not a version: the number is too large"
    return ""


def _entries(path: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(path) as entries:
            return sorted((entry.name, is_directory(entry)) for entry in entries)
    except OSError:
        return []


def is_directory(entry: os.DirEntry[str]) -> bool:
    """False for a link that leads in a circle, too: it must not hide what lies beside it."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def check_layout(model: ModelDirectory) -> list[Finding]:
    """What is wrong with the directory itself; needs no config."""
    findings = [
        Finding(
            Severity.WARNING,
            entry.reason,
            "rename it, or keep it outside the model directory",
            file=entry.name,
            code="REP-004",
        )
        for entry in model.ignored
    ]
    if model.config_path is None:
        candidate = _config_candidate(model)
        if candidate:
            findings.append(
                Finding(
                    Severity.WARNING,
                    f"no {CONFIG_NAME} in '{model.name}/'; the nearest file is '{candidate}'",
                    f"move it to {model.name}/{CONFIG_NAME}",
                    file=candidate,
                    code="REP-003",
                )
            )
    if not model.versions:
        findings.append(_no_version(model))
    return findings


def check_model_files(
    model: ModelDirectory,
    *,
    versions: Iterable[int],
    filename: str,
    may_be_file: bool = True,
    may_be_directory: bool = True,
) -> list[Finding]:
    """Is the model file there in each of `versions`? Says what lies there instead."""
    findings = []
    for version in versions:
        path = model.path / str(version) / filename
        if (may_be_file and path.is_file()) or (may_be_directory and path.is_dir()):
            continue
        present = model.model_files.get(version, [])
        findings.append(
            Finding(
                Severity.ERROR,
                f"version {version} has no '{filename}'; {_found(present)}",
                _rename_hint(model, version, filename, present),
                file=f"{version}/{filename}",
                code="REP-012",
            )
        )
    return findings


def _found(present: list[str]) -> str:
    if not present:
        return "its directory is empty"
    shown = ", ".join(present[:6]) + (", ..." if len(present) > 6 else "")
    return f"found {shown}"


def _rename_hint(model: ModelDirectory, version: int, filename: str, present: list[str]) -> str:
    suffix = Path(filename).suffix
    alike = [name for name in present if Path(name).suffix.casefold() == suffix.casefold()]
    if len(alike) == 1:
        return f"rename it to '{filename}', or set default_model_filename: \"{alike[0]}\""
    if alike:
        return f"set default_model_filename to one of {', '.join(alike[:6])}"
    for name in present:
        nested = f"{version}/{name}/{filename}"
        if (model.path / nested).exists():
            return f"it lies one level too deep: move '{nested}' up"
    if filename in model.files:
        return f"move '{filename}' from the model directory into '{version}/'"
    return f"put the model file there, or set default_model_filename to its name in '{version}/'"


def _config_candidate(model: ModelDirectory) -> str:
    def is_alike(name: str) -> bool:
        lower = name.casefold()
        return lower.startswith("config.") or lower.endswith((".pbtxt", ".pbtxt.txt", ".prototxt"))

    candidates = [name for name in model.files if is_alike(name)]
    for version, names in model.model_files.items():
        candidates += [f"{version}/{name}" for name in names if name == CONFIG_NAME]
    return candidates[0] if candidates else ""


def _no_version(model: ModelDirectory) -> Finding:
    """Why no version is there: wrong nesting, a bare model file, a wrong name."""
    hint = f"create '{model.name}/1/' and put the model file into it"
    renamed = [entry for entry in model.ignored if entry.name.isdecimal()]
    nested = _nested_models(model)
    if nested:
        hint = (
            f"the models lie one level too deep: '{model.name}/{nested[0]}/' is a model directory; "
            f"move it up, or serve '{model.name}/' as a repository"
        )
    elif renamed:
        hint = renamed[0].reason
    else:
        loose = [name for name in model.files if name.startswith("model.")]
        if loose:
            hint = f"move '{loose[0]}' into a version directory: '{model.name}/1/{loose[0]}'"
    return Finding(
        Severity.ERROR,
        f"at least one version must be available: '{model.name}/' has no version directory",
        hint,
        file="",
        code="REP-006",
    )


def _nested_models(model: ModelDirectory) -> list[str]:
    nested = []
    for name, is_directory in _entries(model.path):
        if not is_directory or name in RESERVED_DIRECTORIES or name.startswith("."):
            continue
        inner = scan_model(model.path / name)
        if inner.versions or inner.config_path is not None:
            nested.append(name)
    return nested
