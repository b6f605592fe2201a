"""Findings: what validation says about a model, with the place and the mend."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from serving.config.repair import Repair


class Severity(enum.Enum):
    ERROR = "error"
    """The model cannot load."""
    WARNING = "warning"
    """It loads, and will probably surprise."""
    NOTE = "note"
    """Worth knowing: a default, a field without effect here."""


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    message: str
    """What is wrong, with the values."""
    hint: str = ""
    """How to mend it."""
    field: str = ""
    """Field path, e.g. dynamic_batching.preferred_batch_size[1]."""
    line: int = 0
    """1-based line in `file`; 0 where there is no place."""
    column: int = 0
    """1-based column; 0 where there is no place."""
    file: str = "config.pbtxt"
    """Path relative to the model directory."""
    code: str = ""
    """Rule, e.g. VAL-08."""
    repair: Repair | None = None
    """An edit of `file` that mends it, where a safe one is known."""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "severity": self.severity.value}


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def one_line(finding: Finding) -> str:
    """`config.pbtxt:8:3: message (hint)`: the form used in load errors and logs."""
    place = f"{finding.file}:{finding.line}:{finding.column}: " if finding.line else ""
    hint = f" ({finding.hint})" if finding.hint else ""
    return f"{place}{finding.message}{hint}"
