"""What backends that read one file have in common: where it lies, how large a batch, one answer,
whose fault a failed run is.

Load threads enter, and an instance's thread `failure_of`; looks at the names of files only. Source:
spec AUT-08, CFG-014.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from serving.backends.base import ModelContext
from serving.config.compare import DEFAULT_MAX_BATCH_SIZE
from serving.config.validate_model import escapes
from serving.errors import (
    BackendError,
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    UnavailableError,
    UnsupportedError,
    error_from_code,
)

_CALLERS_WORDS = (
    "shape",
    "dimension",
    "dim index",
    "out of bounds",
    "out of range",
    "out of data bounds",
    "division by zero",
    "missing from input feed",
)
"""What runtimes say of tensors that the config allows and the operations of the model do not."""


def model_path(context: ModelContext, default: str, *, may_be_directory: bool = False) -> Path:
    """The model's file, or folder, in its version directory.

    Raises: UnavailableError with the path that was looked for (PT-29), ModelLoadError for a name
    that leads out of the folder.
    """
    filename = context.config.default_model_filename or default
    if escapes(filename):
        raise ModelLoadError(
            f"default_model_filename '{filename}' lies outside model directory: name a file in the "
            "version folder"
        )
    path = context.version_directory / filename
    if not (path.exists() if may_be_directory else path.is_file()):
        raise UnavailableError(
            f"unable to find '{context.version}/{filename}' for model '{context.config.name}': put "
            "the model file there, or name it in default_model_filename"
        )
    return path


def default_max_batch_size(backend_config: Mapping[str, str]) -> int:
    """What auto-complete gives a model that can batch. Raises InvalidArgumentError."""
    key = "default-max-batch-size"
    text = backend_config.get(key, str(DEFAULT_MAX_BATCH_SIZE))
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidArgumentError(
            f"backend config '{key}' is '{text}': it must be a whole number from 0 to 999999999"
        )
    return int(text)


def refuse_decoupled(context: ModelContext) -> None:
    """Raises UnsupportedError for a config that lets the model answer more than once."""
    if context.spec.is_decoupled:
        raise UnsupportedError(
            "model_transaction_policy.decoupled is for backends that may answer more than once; "
            f"{context.spec.backend} answers once: remove it"
        )


def failure_of(model: str, cause: str) -> ServingError:
    """Of a run that failed: INVALID_ARG where the runtime's words blame the tensors."""
    if any(word in cause.casefold() for word in _CALLERS_WORDS):
        text = f"model '{model}' refused the request: {cause}"
        return error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)
    return BackendError(f"model '{model}' failed to execute: {cause}")
