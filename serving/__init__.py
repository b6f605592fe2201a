"""Conch's serving core: a Triton-compatible inference server that runs alone or inside a worker.

Imports no web framework, no Celery and no Redis; each machine-learning runtime is imported by its
own backend only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

TRITON_COMPATIBLE_VERSION = "2.73.0"
"""The Triton release whose schema and protocol this core follows."""

_IN_PROCESS = frozenset({"FrontendOptions", "Model", "ModelServer", "Response", "ServingError"})


def __getattr__(name: str) -> Any:
    """`serving.ModelServer` and its words, for programs and notebooks; see `serving.in_process`.

    Loaded on first use, by name: who wants a part of the core only does not pay for all of it.
    """
    if name not in _IN_PROCESS:
        raise AttributeError(f"module 'serving' has no attribute '{name}'")
    return getattr(import_module("serving.in_process"), name)
