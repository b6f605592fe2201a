"""The checks of a model directory, as JSON rows that pages and the API show.

Calls `serving.config.check`, the same rules that a worker applies when it loads. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from serving.config.check import check_model
from serving.config.findings import Finding, Severity, errors_of

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def check_directory(directory: Path, *, config_text: str | None = None) -> list[Finding]:
    """Findings about the model in `directory`; `config_text` stands for its config.pbtxt."""
    return list(check_model(directory, config_text=config_text).findings)


def as_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """JSON rows, errors first, then by line."""
    ordered = sorted(findings, key=lambda item: (_ORDER[item.severity], item.file, item.line))
    return [finding.as_dict() for finding in ordered]


def has_errors(findings: Iterable[Finding]) -> bool:
    return bool(errors_of(findings))
