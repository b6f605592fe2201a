"""Where the file of a PyTorch model lies. Load threads; blocks on the disk. Source: PT-29."""

from __future__ import annotations

from pathlib import Path

from serving.backends.base import ModelContext
from serving.config.validate_model import escapes
from serving.errors import ModelLoadError, UnavailableError


def model_path(context: ModelContext, *defaults: str) -> Path:
    """default_model_filename, or the first of `defaults` that is there.

    Raises: ModelLoadError for a name outside of the version folder, UnavailableError where there is
    no such file.
    """
    named = context.config.default_model_filename
    if named and escapes(named):
        raise ModelLoadError(
            f"default_model_filename '{named}' lies outside model directory: name a file in the "
            "version folder"
        )
    names = [named, *defaults] if named else list(defaults)
    for name in names:
        path = context.version_directory / name
        if path.is_file():
            return path
    shown = " or ".join(f"'{context.version}/{name}'" for name in dict.fromkeys(names))
    raise UnavailableError(
        f"unable to find {shown} for model '{context.config.name}': put the model file there, or "
        "name it in default_model_filename"
    )
