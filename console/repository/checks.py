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

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def check_directory(directory: Path, *, config_text: str | None = None) -> list[Finding]:
    """Findings about the model in `directory`, which may be staged; `config_text` stands for its
    config.pbtxt. Ensembles meet their parts, and parts the ensembles, that the repository has.
    """
    check = check_model(directory, config_text=config_text)
    repository = staging.repository_root()
    check_parts(check, directory.name, repository, parts_may_come=True)
    check_users(check, directory.name, repository)
    return [*check.findings, *missing_runtime(check)]


def missing_runtime(check: ModelCheck) -> list[Finding]:
    """What no worker that is there could load for want of a package; it is no mistake of the
    model, and a worker that has the package may yet come.
    """
    config = check.effective
    if config is None or "EXECUTION_ENV_PATH" in config.parameters:
        return []
    known = [
        item
        for worker in workers.known()[0]
        if not worker.is_gone
        for item in worker.backends
        if item.name == config.backend
    ]
    if not known or not all(item.is_missing for item in known):
        return []
    return [
        Finding(
            Severity.WARNING,
            f"no worker has what backend '{config.backend}' needs: {known[0].problem}",
            f"on a worker: {known[0].install}, then start it anew",
            field="backend",
            file="",
            code="RUNTIME",
        )
    ]


def as_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """JSON rows, errors first, then by line."""
    ordered = sorted(findings, key=lambda item: (_ORDER[item.severity], item.file, item.line))
    return [finding.as_dict() for finding in ordered]


def has_errors(findings: Iterable[Finding]) -> bool:
    return bool(errors_of(findings))
