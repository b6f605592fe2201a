"""Conch's serving core: a Triton-compatible inference server that runs alone or inside a worker.

Imports no web framework, no Celery and no Redis; each machine-learning runtime is imported by its
own backend only.
"""

from __future__ import annotations

__version__ = "0.1.0"

TRITON_COMPATIBLE_VERSION = "2.73.0"
"""The Triton release whose schema and protocol this core follows."""
