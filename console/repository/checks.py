"""The checks of a model directory, as JSON rows that pages and the API show.

Calls `serving.config.check`, the same rules that a worker applies when it loads. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from console.core import workers
from console.repository import staging
from serving.config.check import ModelCheck, check_model
from serving.config.check_graph import check_parts, check_users
from serving.config.findings import Finding, Severity, errors_of
from serving.config.protobuf import pb
from serving.config.suggest import nearest

_BACKEND_FILES = ("libconch_{}.so", "libtriton_{}.so", "conch_{}.py")
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def check_directory(directory: Path, *, config_text: str | None = None) -> list[Finding]:
    """Findings about the model in `directory`, which may be staged; `config_text` stands for its
    config.pbtxt. Ensembles meet their parts, and parts the ensembles, that the repository has.
    """
    check = check_model(directory, config_text=config_text)
    repository = staging.repository_root()
    check_parts(check, directory.name, repository, parts_may_come=True)
    check_users(check, directory.name, repository)
    return [*check.findings, *what_workers_lack(check, directory)]


def what_workers_lack(check: ModelCheck, directory: Path) -> list[Finding]:
    """Why no worker that is there could load it. Warnings: it may be no mistake of the model, and
    a worker that has what is missing may yet come.
    """
    config = check.effective
    if config is None or not config.backend or "EXECUTION_ENV_PATH" in config.parameters:
        return []
    known = [
        item for worker in workers.known()[0] if not worker.is_gone for item in worker.backends
    ]
    names = {item.name for item in known}
    if known and config.backend not in names:
        return [] if _brings_its_backend(config, directory) else [_unknown(config.backend, names)]
    ours = [item for item in known if item.name == config.backend]
    if not ours or not all(item.is_missing for item in ours):
        return []
    return [
        _warning(
            f"no worker has what backend '{config.backend}' needs: {ours[0].problem}",
            f"on a worker: {ours[0].install}, then start it anew",
        )
    ]


def _unknown(backend: str, names: set[str]) -> Finding:
    close = nearest(backend, names)
    meant = f"did you mean '{close}'? " if close else ""
    return _warning(
        f"no worker knows a backend '{backend}'",
        f"{meant}They have {', '.join(sorted(names))}",
    )


def _warning(message: str, hint: str) -> Finding:
    return Finding(Severity.WARNING, message, hint, field="backend", file="", code="RUNTIME")


def _brings_its_backend(config: pb.ModelConfig, directory: Path) -> bool:
    """The code of the backend lies in the model's folder or a version's, under the usual name or
    the one that the config gives; `serving.backends.search` looks there first.
    """
    usual = [pattern.format(config.backend) for pattern in _BACKEND_FILES]
    wanted = [config.runtime] if config.runtime else usual
    folders = [directory, *directory.glob("[0-9]*")]
    return any((folder / Path(name).name).is_file() for folder in folders for name in wanted)


def as_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """JSON rows, errors first, then by line."""
    ordered = sorted(findings, key=lambda item: (_ORDER[item.severity], item.file, item.line))
    return [finding.as_dict() for finding in ordered]


def has_errors(findings: Iterable[Finding]) -> bool:
    return bool(errors_of(findings))
