"""Which file is a model's config, and what it says. Blocking; runs in loading threads.

`--model-config-name=NAME` makes `configs/NAME.pbtxt` the config of every model that has that file;
the others keep `config.pbtxt`. Source: spec REP-003, REP-009.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from serving.config import json_form, pbtxt
from serving.config.findings import Finding, errors_of, one_line
from serving.config.pbtxt import ParsedConfig
from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError
from serving.repository.layout import CONFIG_NAME

VARIANTS = "configs"
_MOST_FINDINGS = 5


def names(config_name: str = "") -> list[str]:
    """Paths below the model directory at which its config may lie, the first one counts."""
    return [f"{VARIANTS}/{config_name}.pbtxt", CONFIG_NAME] if config_name else [CONFIG_NAME]


def relative_path(directory: Path, config_name: str = "") -> str:
    """Path of the config below the model directory; the file may be absent."""
    found = (name for name in names(config_name) if os.path.lexists(directory / name))
    return next(found, CONFIG_NAME)


def read(
    directory: Path, override: str | None, *, config_name: str = "", may_be_absent: bool = True
) -> ParsedConfig:
    """The config of a load: `override` (JSON), or the file. Raises InvalidArgumentError."""
    if override is not None:
        return ParsedConfig("", json_form.from_json(override), [], file="config override")
    relative = relative_path(directory, config_name)
    path = directory / relative
    if not os.path.lexists(path):  # a link that leads nowhere is a mistake, not an absent file
        if not may_be_absent:
            raise InvalidArgumentError(
                f"{relative} is missing and --disable-auto-complete-config is set; add the file"
            )
        return ParsedConfig("", pb.ModelConfig(), [])
    try:
        text, findings = pbtxt.read_text(path)
    except OSError as error:
        raise InvalidArgumentError(f"{relative} cannot be read: {error.strerror}") from error
    refuse(findings)
    parsed = pbtxt.parse(text or "", file=relative)
    refuse(parsed.findings)
    return parsed


def refuse(findings: Iterable[Finding]) -> None:
    """Raises InvalidArgumentError when one of the findings is an error."""
    errors = errors_of(findings)
    if errors:
        told = "; ".join(one_line(error) for error in errors[:_MOST_FINDINGS])
        left = len(errors) - _MOST_FINDINGS
        raise InvalidArgumentError(f"{told}; and {left} more" if left > 0 else told)
