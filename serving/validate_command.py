"""`python -m serving validate`: what is wrong with the models of a repository, before serving it.

For people, for CI and for pre-commit: the findings of `serving.config.check`, without a server.
Runs no model code. Single thread; reads the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.config.check import ModelCheck, check_model
from serving.config.check_graph import add_graph_findings
from serving.config.findings import Finding, Severity
from serving.errors import InvalidArgumentError
from serving.repository.layout import ModelDirectory, scan_model, scan_repository

DESCRIPTION = """\
Check a model repository, one model directory, or a config.pbtxt: the text of the config, every rule
of loading, and what the model files say. Exit status: 0 no error, 1 errors, 2 bad usage.
"""


@dataclass(frozen=True, slots=True)
class CheckedModel:
    directory: Path
    """As reached from the path that was given."""
    check: ModelCheck

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    def count(self, severity: Severity) -> int:
        return sum(item.severity is severity for item in self.check.findings)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": str(self.directory),
            "versions": self.check.versions,
            "ok": self.count(Severity.ERROR) == 0,
            "findings": [item.as_dict() for item in self.check.findings],
        }


def main(arguments: Sequence[str]) -> int:
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
        checked = check_paths(options.paths, strict=options.strict, gpu_count=options.gpus)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    except InvalidArgumentError as error:
        sys.stderr.write(f"{parser.prog}: error: {error.message}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps(_as_json(checked), indent=2) + "\n")
    else:
        sys.stdout.write("".join(_lines(checked, notes=options.notes)))
        sys.stderr.write(_summary(checked) + "\n")
    return 1 if any(model.count(Severity.ERROR) for model in checked) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m serving validate", description=DESCRIPTION)
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="repository, model directory or config.pbtxt"
    )
    parser.add_argument("--json", action="store_true", help="write JSON, with repairs")
    parser.add_argument("--strict", action="store_true", help="as with auto-complete switched off")
    parser.add_argument("--notes", action="store_true", help="show notes too")
    parser.add_argument(
        "--gpus", type=_count, metavar="N", help="GPUs of the place where the models will run"
    )
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {value}")
    return value


def check_paths(
    paths: Iterable[str | Path], *, strict: bool = False, gpu_count: int | None = None
) -> list[CheckedModel]:
    """Check every model that the paths lead to, each once.

    Raises: InvalidArgumentError when a path leads to no model and no repository.
    """
    directories: dict[Path, None] = {}
    repositories: list[list[Path]] = []
    for path in paths:
        models = _models_at(Path(path))
        repositories.append(models)
        directories |= dict.fromkeys(models)
    checks = {path: check_model(path, strict=strict, gpu_count=gpu_count) for path in directories}
    for path, check in checks.items():
        for variant in sorted((path / "configs").glob("*.pbtxt")):
            file = f"configs/{variant.name}"
            other = check_model(path, strict=strict, gpu_count=gpu_count, config_file=file)
            check.findings += [item for item in other.findings if item.file == file]
    for models in repositories:
        _check_ensembles({path: checks[path] for path in models})
    return [CheckedModel(path, check) for path, check in checks.items()]


def _models_at(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix != ".pbtxt":
            raise InvalidArgumentError(f"'{path}' is a file, but no config.pbtxt")
        return [path.parent]
    if path.is_dir() and _is_model(scan_model(path)):
        return [path]
    return [model.path for model in scan_repository(path)]


def _is_model(directory: ModelDirectory) -> bool:
    return bool(directory.versions) or directory.config_path is not None


def _check_ensembles(checks: dict[Path, ModelCheck]) -> None:
    """Rules between the models of one repository; a model checked alone has no others to meet."""
    if len(checks) > 1:
        add_graph_findings({path.resolve().name: check for path, check in checks.items()})


def _lines(checked: Iterable[CheckedModel], *, notes: bool) -> Iterable[str]:
    for model in checked:
        for item in model.check.findings:
            if notes or item.severity is not Severity.NOTE:
                yield f"{_line(model.directory, item)}\n"


def _line(directory: Path, item: Finding) -> str:
    place = os.path.join(directory, item.file) if item.file else str(directory)
    position = f":{item.line}:{item.column}" if item.line else ""
    hint = f" ({item.hint})" if item.hint else ""
    return f"{place}{position}: {item.severity.value}: {item.message}{hint}"


def _summary(checked: Sequence[CheckedModel]) -> str:
    counts = [
        _counted(len(checked), "model"),
        _counted(sum(model.count(Severity.ERROR) for model in checked), "error"),
        _counted(sum(model.count(Severity.WARNING) for model in checked), "warning"),
    ]
    return ", ".join(counts)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _as_json(checked: Sequence[CheckedModel]) -> dict[str, Any]:
    return {
        "ok": not any(model.count(Severity.ERROR) for model in checked),
        "errors": sum(model.count(Severity.ERROR) for model in checked),
        "warnings": sum(model.count(Severity.WARNING) for model in checked),
        "models": [model.as_dict() for model in checked],
    }
