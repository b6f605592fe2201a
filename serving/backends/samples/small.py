"""`query` and `distributed_addsub`: samples of a backend that looks at where outputs go, and of one
with two results.

`query` answers with an error that names the kind of memory each output would be put into, which is
what Triton's tests ask of it. Source: spec SMP-01, Triton's src/test/query, distributed_addsub.
Instances run in their own thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.backends.attributes import BackendAttributes
from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    TensorInstance,
)
from serving.backends.samples.checks import check_io
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError, ServingError
from serving.request import InferenceRequest


class QueryBackend(Backend):
    name = "query"
    attributes = BackendAttributes(parallel_instance_loading=True)

    def load(self, context: ModelContext) -> LoadedModel:
        check_io(context.spec, ("INPUT",), ("OUTPUT0", "OUTPUT1"))
        return _QueryModel()


class _QueryModel(LoadedModel):
    def create_instance(self, placement: Placement) -> ModelInstance:
        return _QueryInstance()


class _QueryInstance(ModelInstance):
    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        for request in requests:
            buffers = {item.name: item.buffer for item in request.requested_outputs}
            places = [
                f"{name} {getattr(buffers.get(name), 'memory_type', 'CPU')} "
                f"{getattr(buffers.get(name), 'device_id', 0)}"
                for name in ("OUTPUT0", "OUTPUT1")
            ]
            request.respond_error(ServingError("; ".join(places)))


class DistributedAddSubBackend(Backend):
    name = "distributed_addsub"
    attributes = BackendAttributes(parallel_instance_loading=True)

    def load(self, context: ModelContext) -> LoadedModel:
        spec = context.spec
        check_io(spec, ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1"))
        tensors = [*spec.inputs.values(), *spec.outputs.values()]
        datatypes = {item.datatype for item in tensors}
        if len(datatypes) > 1 or datatypes & {BY_NAME["BYTES"], BY_NAME["BOOL"]}:
            raise InvalidArgumentError(
                f"model '{spec.name}': inputs and outputs of the {self.name} backend must have the "
                "same numeric data_type"
            )
        return _AddSubModel(context)


class _AddSubModel(LoadedModel):
    def __init__(self, context: ModelContext) -> None:
        self._context = context

    def create_instance(self, placement: Placement) -> ModelInstance:
        return _AddSubInstance(self._context)


class _AddSubInstance(TensorInstance):
    def run(
        self, inputs: dict[str, NDArray[np.generic]], output_names: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        first, second = inputs["INPUT0"], inputs["INPUT1"]
        if first.shape != second.shape:
            raise InvalidArgumentError(
                f"model '{self._spec.name}' adds INPUT0 and INPUT1, which have the shapes "
                f"{list(first.shape)} and {list(second.shape)}: send equal ones"
            )
        results = {"OUTPUT0": np.add(first, second), "OUTPUT1": np.subtract(first, second)}
        return {name: results[name] for name in output_names}
