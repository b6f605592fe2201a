"""`sequence` and `dyna_sequence`: samples of backends that add up the requests of a sequence.

OUTPUT is the sum of INPUT over the sequence so far; `dyna_sequence` adds the correlation id to the
last answer. What is added up belongs to the instance, to which a sequence is bound. Source: spec
SMP-01, Triton's src/test/sequence and dyna_sequence. Instances run in their own thread.
"""

from __future__ import annotations

import time
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
)
from serving.backends.identity import delay_s
from serving.backends.samples.checks import check_io
from serving.config.decode import SchedulerKind
from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor


class SequenceBackend(Backend):
    name = "sequence"
    attributes = BackendAttributes(parallel_instance_loading=True)
    adds_id = False
    """To the last answer of a sequence."""

    def load(self, context: ModelContext) -> LoadedModel:
        spec = context.spec
        check_io(spec, ("INPUT",), ("OUTPUT",))
        if spec.scheduler is not SchedulerKind.SEQUENCE:
            raise InvalidArgumentError(
                f"model '{spec.name}': the {self.name} backend adds up sequences: set "
                "sequence_batching"
            )
        datatypes = (spec.inputs["INPUT"].datatype, spec.outputs["OUTPUT"].datatype)
        if datatypes[0] is not datatypes[1] or datatypes[0].is_bytes:
            raise InvalidArgumentError(
                f"model '{spec.name}': INPUT and OUTPUT of the {self.name} backend must have the "
                f"same numeric data_type, found {' and '.join(x.config_name for x in datatypes)}"
            )
        return _SequenceModel(context, self.adds_id)


class DynaSequenceBackend(SequenceBackend):
    name = "dyna_sequence"
    adds_id = True


class _SequenceModel(LoadedModel):
    def __init__(self, context: ModelContext, adds_id: bool) -> None:
        self._context = context
        self._adds_id = adds_id
        self._delay_s = delay_s(context.spec)

    def create_instance(self, placement: Placement) -> ModelInstance:
        return _SequenceInstance(self._context, self._adds_id, self._delay_s)


class _SequenceInstance(ModelInstance):
    def __init__(self, context: ModelContext, adds_id: bool, delay_s: float) -> None:
        self._name = context.spec.name
        self._version = context.version
        self._adds_id = adds_id
        self._delay_s = delay_s
        self._sums: dict[int | str, NDArray[np.generic]] = {}

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        if self._delay_s:
            time.sleep(self._delay_s)
        for request in requests:
            tensor = request.inputs["INPUT"]
            total = self._next(request, tensor.array)
            output = OutputTensor("OUTPUT", tensor.datatype, total.shape, total)
            request.respond(InferenceResponse(self._name, self._version, request.id, [output]))

    def _next(self, request: InferenceRequest, value: NDArray[np.generic]) -> NDArray[np.generic]:
        key = request.correlation_id
        if request.sequence_start:
            self._sums.pop(key, None)
        before = self._sums.get(key)
        total = value.copy() if before is None else np.add(before, value)
        if not request.sequence_end:
            self._sums[key] = total
            return total
        self._sums.pop(key, None)
        if not self._adds_id:
            return total
        try:
            last: NDArray[np.generic] = np.add(total, np.array(int(key)).astype(total.dtype))
        except ValueError:
            raise InvalidArgumentError(
                f"model '{self._name}' adds the correlation id to its last answer, and '{key}' is "
                "no number"
            ) from None
        return last
