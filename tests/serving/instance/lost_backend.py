"""A backend whose instances are lost where a request begins with 1: as after a CUDA error."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.backends.base import Backend, LoadedModel, ModelContext, Placement, TensorInstance
from serving.errors import InstanceLostError

NAME = "tests.serving.instance.lost_backend:LostBackend"


class LostBackend(Backend):
    name = "lost"

    def load(self, context: ModelContext) -> LoadedModel:
        return _Model(context)


class _Model(LoadedModel):
    def __init__(self, context: ModelContext) -> None:
        self._context = context

    def create_instance(self, placement: Placement) -> TensorInstance:
        return _Instance(self._context)


class _Instance(TensorInstance):
    def run(
        self, inputs: dict[str, NDArray[np.generic]], output_names: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        if inputs["IN"].reshape(-1)[:1] == 1:
            raise InstanceLostError("CUDA error: an illegal memory access was encountered")
        return {"OUT": np.full(inputs["IN"].shape, os.getpid(), np.float32)}
