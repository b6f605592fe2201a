"""Collects findings about one config, each at the place of its field. One Report, one thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from serving.config.findings import Finding, Severity
from serving.config.mend import Mender
from serving.config.pbtxt import ParsedConfig
from serving.config.protobuf import pb
from serving.config.repair import Edit


@dataclass(frozen=True, slots=True)
class Available:
    """What the place where the model will run has; None where it is not known."""

    gpu_count: int | None = None
    backends: frozenset[str] | None = None


@dataclass(slots=True)
class Report:
    parsed: ParsedConfig
    config: pb.ModelConfig
    model_directory: Path | None = None
    available: Available = Available()
    findings: list[Finding] = field(default_factory=list)

    def error(
        self, path: str, message: str, hint: str = "", *, code: str, edit: Edit | None = None
    ) -> None:
        found = self.parsed.finding(Severity.ERROR, path, message, hint, code=code, edit=edit)
        self.findings.append(found)

    def warning(
        self, path: str, message: str, hint: str = "", *, code: str, edit: Edit | None = None
    ) -> None:
        found = self.parsed.finding(Severity.WARNING, path, message, hint, code=code, edit=edit)
        self.findings.append(found)

    def note(self, path: str, message: str, hint: str = "", *, code: str) -> None:
        found = self.parsed.finding(Severity.NOTE, path, message, hint, code=code)
        self.findings.append(found)

    @property
    def mend(self) -> Mender:
        return self.parsed.mender

    @property
    def is_ensemble(self) -> bool:
        platform: str = self.config.platform
        return platform == "ensemble" or bool(self.config.HasField("ensemble_scheduling"))

    @property
    def is_tensorrt(self) -> bool:
        return "tensorrt" in (self.config.backend, self.config.platform.removesuffix("_plan"))
