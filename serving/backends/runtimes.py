"""Imports the runtimes of the backends: only where a model needs one, and with a way to get it.

A module that is missing is a reason to install it; one that is there and cannot be imported, say
for want of a driver library, has its own reason. Load threads enter.
"""

from __future__ import annotations

import importlib
from typing import Any

from serving.errors import UnavailableError


def require(module: str, *, backend: str, install: str) -> Any:
    """The module of a runtime; `install` is the command that brings it.

    Raises: UnavailableError with that command, or with what kept the module from being imported.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == module.partition(".")[0]:
            is_part = module.startswith(f"{error.name}.")  # nvidia, where nvidia.dali is wanted
            raise UnavailableError(
                f"the {backend} backend cannot be used, its package "
                f"'{module if is_part else error.name}' is missing: {install}"
            ) from error
        raise UnavailableError(_broken(module, backend, install, error)) from error
    except (ImportError, OSError) as error:
        raise UnavailableError(_broken(module, backend, install, error)) from error


def _broken(module: str, backend: str, install: str, error: Exception) -> str:
    return (
        f"the {backend} backend cannot be used, its package '{module}' is there but could not be "
        f"imported: {error}; install it anew: {install}"
    )
