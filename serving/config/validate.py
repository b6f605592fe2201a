"""Validation of a completed config: every load-time rule that needs no running model (VAL-xx).

Pure but for looking at files that the config names; any thread. `validate` works on
`parsed.config` as it stands, so complete it first (`serving.config.complete`).
"""

from __future__ import annotations

from pathlib import Path

from serving.config.findings import Finding
from serving.config.pbtxt import ParsedConfig
from serving.config.protobuf import pb
from serving.config.report import Available, Report
from serving.config.validate_batcher import check_strategy
from serving.config.validate_ensemble import check_ensemble
from serving.config.validate_instances import check_instances
from serving.config.validate_io import check_io
from serving.config.validate_model import check_model
from serving.config.validate_scheduling import check_scheduling
from serving.config.validate_sequence import check_sequence
from serving.config.validate_warmup import check_warmup

__all__ = ["Available", "validate"]


def validate(
    parsed: ParsedConfig,
    *,
    directory_name: str,
    model_directory: Path | None = None,
    strict: bool = False,
    available: Available | None = None,
    config: pb.ModelConfig | None = None,
) -> list[Finding]:
    """What is wrong with a config; the findings of parsing come first.

    `config` stands for `parsed.config` where it was completed apart (an override, a copy).
    `strict` means that no backend will fill in inputs and outputs.
    """
    config = config if config is not None else parsed.config
    if config is None:
        return list(parsed.findings)
    report = Report(parsed, config, model_directory, available or Available())
    check_model(report, directory_name)
    check_scheduling(report)
    check_sequence(report)
    check_strategy(report)
    check_ensemble(report)
    check_io(report, strict=strict)
    check_instances(report)
    check_warmup(report)
    return [*parsed.findings, *report.findings]
