"""The backend of ensembles, which have no model file and no instance: their scheduler does it all.

It stands where every model has a backend; the core never loads anything through it. Source: spec
REP-032.
"""

from __future__ import annotations

from typing import ClassVar

from serving.backends.base import Backend, LoadedModel, ModelContext
from serving.errors import UnsupportedError


class EnsembleBackend(Backend):
    name: ClassVar[str] = "ensemble"
    default_cpu_instance_count: ClassVar[int] = 0

    def load(self, context: ModelContext) -> LoadedModel:
        raise UnsupportedError(f"ensemble '{context.spec.name}' has no model file to load")
