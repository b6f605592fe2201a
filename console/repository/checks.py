"""The checks of a model directory, as JSON rows that pages and the API show.

Calls `serving.config.check`, the same rules that a worker applies when it loads. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from console.repository import staging
from serving.config.check import check_model
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
    return list(check.findings)


def as_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """JSON rows, errors first, then by line."""
    ordered = sorted(findings, key=lambda item: (_ORDER[item.severity], item.file, item.line))
    return [finding.as_dict() for finding in ordered]


def has_errors(findings: Iterable[Finding]) -> bool:
    return bool(errors_of(findings))
