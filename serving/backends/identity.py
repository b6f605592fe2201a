"""The built-in identity backend: each output is the input at the same place in the config, and each
state stays as it is.

For load tests and examples. With batch_input the tensors made for the batch are returned after the
inputs, and the batch is joined and scattered as for any model that maps arrays to arrays. Config
parameters as of Triton's sample backend (SMP-01): `execute_delay_ms` makes every execution last
that long, `instance_wise_delay_multiplier` times that and the number of the instance;
`creation_delay_sec` makes an instance come late; `enable_custom_tracing` adds two moments to the
trace of a request. The metric `input_byte_size_counter` adds up the bytes of inputs. Instances run
in their own thread.
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
    TensorInstance,
)
from serving.backends.counter import Counter
from serving.config.decode import ModelSpec, TensorSpec
from serving.errors import InvalidArgumentError
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor

_DELAY = "execute_delay_ms"


class IdentityBackend(Backend):
    name = "identity"
    attributes = BackendAttributes(parallel_instance_loading=True)

    def load(self, context: ModelContext) -> LoadedModel:
        return _IdentityModel(context)


class _IdentityModel(LoadedModel):
    def __init__(self, context: ModelContext) -> None:
        self._context = context
        self._pairs = _pairs(context.spec)
        self._bytes = Counter(
            context,
            "input_byte_size_counter",
            "Cumulative byte size of all input requests received by the model",
        )
        self.counters = (self._bytes,)
        self._delay_s = delay_s(context.spec)
        self._multiplier = _number(context.spec, "instance_wise_delay_multiplier", 1_000_000)
        self._creation_delay_s = _number(context.spec, "creation_delay_sec", 3600)
        self._is_traced = context.spec.parameters.get("enable_custom_tracing", "").lower() == "true"

    def create_instance(self, placement: Placement) -> ModelInstance:
        if self._creation_delay_s:
            time.sleep(self._creation_delay_s)
        factor = 1.0
        if self._multiplier:
            number = placement.instance_name.rpartition("_")[2]
            factor = self._multiplier * max(1, int(number) if number.isdigit() else 0)
        delay_s = self._delay_s * factor
        instance: ModelInstance
        if self._context.spec.batch_inputs or self._context.spec.batch_outputs:
            instance = _JoinedIdentityInstance(self._context, self._pairs, delay_s)
        else:
            instance = _IdentityInstance(self._context, self._pairs, delay_s, self._is_traced)
        return _Counting(instance, self._bytes)


class _Counting(ModelInstance):
    def __init__(self, inner: ModelInstance, counter: Counter) -> None:
        self._inner = inner
        self._counter = counter

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        # Before the answers, which release the inputs.
        self._counter.add(
            sum(_size(item.array) for request in requests for item in request.inputs.values())
        )
        self._inner.execute(requests, times)


def _size(array: NDArray[np.generic]) -> int:
    """Bytes as a request carries them: each text has its length, of 4 bytes, before it."""
    if array.dtype.hasobject:
        return sum(4 + len(item) for item in array.ravel().tolist())
    return array.nbytes


class _IdentityInstance(ModelInstance):
    def __init__(
        self,
        context: ModelContext,
        pairs: list[tuple[str, TensorSpec]],
        delay_s: float,
        is_traced: bool = False,
    ) -> None:
        self._name = context.spec.name
        self._version = context.version
        self._pairs = pairs
        self._delay_s = delay_s
        self._is_traced = is_traced

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        if self._is_traced:
            _stamp(requests, "CUSTOM_ACTIVITY_START")
        if self._delay_s:
            time.sleep(self._delay_s)
        if self._is_traced:
            _stamp(requests, "CUSTOM_ACTIVITY_END")
        for request in requests:
            outputs = []
            for input_name, output in self._pairs:
                tensor = request.inputs.get(input_name)
                if tensor is not None:
                    outputs.append(
                        OutputTensor(output.name, output.datatype, tensor.shape, tensor.array)
                    )
            request.respond(InferenceResponse(self._name, self._version, request.id, outputs))


class _JoinedIdentityInstance(TensorInstance):
    """Returns the tensors of the batch, so that batch_output has something to scatter."""

    def __init__(
        self, context: ModelContext, pairs: list[tuple[str, TensorSpec]], delay_s: float
    ) -> None:
        super().__init__(context)
        self._inputs_of = {output.name: name for name, output in pairs}
        self._delay_s = delay_s

    def run(
        self, inputs: dict[str, NDArray[np.generic]], output_names: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        if self._delay_s:
            time.sleep(self._delay_s)
        return {name: inputs[self._inputs_of[name]] for name in output_names}


def _pairs(spec: ModelSpec) -> list[tuple[str, TensorSpec]]:
    known = spec.backend_outputs
    states = [(state.input_name, known[state.output_name]) for state in spec.states]
    kept = {output.name for _, output in states}
    inputs = [(item.name, item.datatype) for item in spec.inputs.values()]
    inputs += [(name, item.datatype) for item in spec.batch_inputs for name in item.names]
    outputs = [item for item in spec.outputs.values() if item.name not in kept]
    if len(outputs) > len(inputs):
        raise InvalidArgumentError(
            f"model '{spec.name}' has {len(inputs)} inputs and {len(outputs)} outputs: the "
            "identity backend returns inputs, so it needs at least as many inputs as outputs"
        )
    for (source, datatype), target in zip(inputs, outputs, strict=False):
        if datatype is not target.datatype:
            raise InvalidArgumentError(
                f"output '{target.name}' of model '{spec.name}' is {target.datatype.config_name}, "
                f"but the identity backend returns input '{source}' there, which is "
                f"{datatype.config_name}: give both the same data_type"
            )
    pairs = [(source, target) for (source, _), target in zip(inputs, outputs, strict=False)]
    return pairs + states


def delay_s(spec: ModelSpec) -> float:
    """How long an execution takes, by the parameter. Raises: InvalidArgumentError."""
    return _number(spec, _DELAY, 3_600_000) / 1000


def _number(spec: ModelSpec, name: str, most: float) -> float:
    text = spec.parameters.get(name, "0")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise InvalidArgumentError(
            f"parameter '{name}' of model '{spec.name}' is '{text}': it must be a number from 0 to "
            f"{most:g}"
        )
    return value


def _stamp(requests: Sequence[InferenceRequest], name: str) -> None:
    for request in requests:
        if request.trace is not None:
            request.trace.stamp(name)
