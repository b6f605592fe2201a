"""The backend contract: what a runtime implements, and the array-to-array shortcut on top of it.

`Backend` and `LoadedModel` are used in loading threads and may block. A `ModelInstance` is entered
by one thread only: the thread of its host, or the main thread of its child process.
Behaviour after the Triton backend API (TRITONBACKEND_Backend, _Model, _ModelInstance).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from serving.backends.attributes import BackendAttributes
from serving.backends.child_services import ChildServices
from serving.backends.ragged import RaggedInputs, ScatteredOutputs
from serving.backends.results import check_results
from serving.child_program import Interpreter
from serving.config.decode import InstanceKind, ModelSpec
from serving.config.protobuf import pb
from serving.custom_metrics import Counted
from serving.errors import BackendError, ErrorCode, ModelLoadError, ServingError
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What a backend may know of the model version that it loads."""

    spec: ModelSpec
    config: pb.ModelConfig
    version: int
    model_directory: Path
    backend_config: Mapping[str, str] = field(default_factory=dict)
    """--backend-config for this backend, global keys merged in."""
    runtime_directory: Path | None = None
    """The folder of a Python-based backend, whose model.py runs the model."""
    interpreter: Interpreter | None = None
    """What runs the instance processes; None: the interpreter of the server."""
    child: ChildServices | None = None
    """Where the instance has a process of its own, in that process."""

    @property
    def version_directory(self) -> Path:
        return self.model_directory / str(self.version)

    def cuda_number(self, placement: Placement) -> int:
        """Of the GPU of an instance, as CUDA counts in this process: a process of the instance's
        own sees that GPU only, which is number 0 there."""
        return 0 if self.child is not None else placement.device_id


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one instance runs."""

    instance_name: str
    kind: InstanceKind
    device_id: int = 0
    host_policy: str = ""
    """The name that the group gives it; empty for the one of its kind."""
    cpu_cores: frozenset[int] = frozenset()
    """Where it may run; empty for everywhere."""


@dataclass(slots=True)
class ExecutionTimes:
    """Filled while a batch executes; monotonic nanoseconds, 0 where the instance did not say."""

    compute_start_ns: int = 0
    input_end_ns: int = 0
    output_start_ns: int = 0
    compute_end_ns: int = 0


class ModelInstance(ABC):
    """One running copy of a model."""

    @abstractmethod
    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        """Answer every request through `request.respond`.

        A request is released with its final response. Raising fails every request of the batch
        that has not had its final response.
        """

    @property
    def has_ready_hook(self) -> bool:
        """The model itself knows whether it is ready, and `is_ready` asks it (BE-009)."""
        return False

    def is_ready(self) -> bool:
        """The model's word, in the instance's thread. Raises: whatever its hook raises."""
        return True

    def before_send(self) -> None:
        """Instance processes only: responses are about to go out; any thread."""

    def close(self) -> None:
        """Free what the instance holds. Called once, in the instance's thread."""


class LoadedModel(ABC):
    """One model version, loaded by its backend; shared by its instances."""

    counters: Sequence[Counted] = ()
    """Metrics of the model's own, see `serving.backends.counter`."""

    @abstractmethod
    def create_instance(self, placement: Placement) -> ModelInstance:
        """Called in the instance's own thread."""

    def unload(self) -> None:
        """Free what the instances shared. Called after every instance has closed."""


class Backend(ABC):
    """A runtime. One object for each backend in a server."""

    name: ClassVar[str]
    attributes: ClassVar[BackendAttributes] = BackendAttributes()
    source: str = ""
    """Set by the registry: the file that it comes from, or `module:Class`."""
    runs_in_child_process: ClassVar[bool] = False
    """True: the core never loads it itself; each instance lives in a spawned child process."""
    default_cpu_instance_count: ClassVar[int] = 1
    runtime_directory: Path | None = None
    """Of a Python-based backend: where its model.py lies."""
    default_model_filename: ClassVar[str] = ""

    def initialize(self, config: Mapping[str, str]) -> None:
        """Once in a process, before the first model is loaded (BE-003).

        `config`: --backend-config for this backend, with what the core adds (BE-011). Raising
        fails that load; the next one tries again.
        """

    def finalize(self) -> None:
        """Once, when the server ends and no model is loaded any more."""

    def runs_in_child(self, context: ModelContext) -> bool:
        """The core leaves this model to child processes, one for each instance: of a backend whose
        models are not all alike. `context.spec` may be incomplete here.
        """
        return self.runs_in_child_process

    def prepare_environment(
        self, context: ModelContext, tell: Callable[[], object]
    ) -> Interpreter | None:
        """What runs the model's processes. Blocks; `tell` is called when it takes a while.

        `context.spec` may be incomplete here. Raises: ServingError with the cause.
        """
        return None

    def auto_complete(self, context: ModelContext) -> None:
        """Fill what `context.config` leaves out, from the model file. Mutates the message.

        `context.spec` may be incomplete here.
        Raises: ServingError when the config contradicts the model file.
        """

    @abstractmethod
    def load(self, context: ModelContext) -> LoadedModel:
        """Load the model version. Raises ServingError naming file and cause."""


def loaded_by(backend: Backend, context: ModelContext) -> LoadedModel:
    """Raises: ModelLoadError for what is none, else whatever `load` raises."""
    loaded: object = backend.load(context)
    if not isinstance(loaded, LoadedModel):
        raise ModelLoadError(
            f"load of backend '{context.spec.backend}' returned {type(loaded).__name__}: it must "
            "return a LoadedModel"
        )
    return loaded


def instance_of(loaded: LoadedModel, placement: Placement) -> ModelInstance:
    """Raises: ModelLoadError for what is none, else whatever `create_instance` raises."""
    instance: object = loaded.create_instance(placement)
    if not isinstance(instance, ModelInstance):
        raise ModelLoadError(
            f"create_instance of '{placement.instance_name}' returned {type(instance).__name__}: "
            "it must return a ModelInstance"
        )
    return instance


class TensorInstance(ModelInstance):
    """For runtimes that map arrays to arrays: gather, run and scatter are written here, once."""

    def __init__(self, context: ModelContext) -> None:
        self._spec = context.spec
        self._version = context.version
        self._outputs = context.spec.backend_outputs
        self._rows = 1
        """Of the batch that runs; where the model does not batch, the number of requests."""
        self._states = [state.output_name for state in context.spec.states]
        """Outputs that are wanted with every request (SCH-062)."""
        self._ragged = RaggedInputs(context.spec)
        self._scattered = ScatteredOutputs(context.spec)
        self._shape_tensors = frozenset(
            item.name for item in context.spec.inputs.values() if item.is_shape_tensor
        )
        self._has_own_rules = bool(
            self._ragged.names or context.spec.batch_inputs or self._shape_tensors
        )

    @abstractmethod
    def run(
        self, inputs: dict[str, NDArray[np.generic]], output_names: Sequence[str]
    ) -> dict[str, NDArray[np.generic]]:
        """Run the model once. Arrays carry the batch axis where the model has one; ragged inputs
        are flat, and what batch_input makes is among the inputs.

        Raises: any exception; it becomes a BackendError for every request of the batch. After an
        INVALID_ARG of several requests each is run again alone.
        """

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        try:
            self._answer_batch(requests, times)
        except ServingError as error:
            if len(requests) == 1 or error.code is not ErrorCode.INVALID_ARG:
                raise
            # What one caller sent is no reason to refuse the others of the batch.
            for request in requests:
                self._execute_alone(request, times)

    def _execute_alone(self, request: InferenceRequest, times: ExecutionTimes) -> None:
        try:
            self._answer_batch([request], times)
        except ServingError as error:
            request.respond_error(error)

    def _answer_batch(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        inputs = self._gather(requests)
        times.input_end_ns = time.monotonic_ns()
        names = self._wanted(requests)
        self._rows = sum(request.batch_size for request in requests)
        try:
            outputs = self.run(inputs, names)
        except ServingError:
            raise
        except Exception as error:
            raise BackendError(f"model '{self._spec.name}' failed to execute: {error}") from error
        times.output_start_ns = time.monotonic_ns()
        check_results(self._spec.name, self._outputs, outputs, names)
        if self._spec.has_batch_axis:
            self._check_batch_axis(self._rows, outputs)
        self._scatter(requests, outputs)

    def _check_batch_axis(self, batch_size: int, outputs: dict[str, NDArray[np.generic]]) -> None:
        """Cutting rows out of a wrongly shaped output would give callers each other's data."""
        for name, array in outputs.items():
            if name in self._scattered:
                continue  # as many elements as its source input, however many rows
            if not array.ndim or array.shape[0] != batch_size:
                raise BackendError(
                    f"model '{self._spec.name}' returned output '{name}' with shape "
                    f"{list(array.shape)} for a batch of {batch_size}: its first dimension must "
                    "be the batch; set max_batch_size to 0 if the model does not batch"
                )

    def _gather(self, requests: Sequence[InferenceRequest]) -> dict[str, NDArray[np.generic]]:
        first = requests[0]
        if self._has_own_rules:
            return self._gather_by_rules(requests)
        if len(requests) == 1:
            return {name: tensor.array for name, tensor in first.inputs.items()}
        return {
            name: np.concatenate([request.inputs[name].array for request in requests])
            for name in first.inputs
        }

    def _gather_by_rules(
        self, requests: Sequence[InferenceRequest]
    ) -> dict[str, NDArray[np.generic]]:
        gathered = {}
        for name in requests[0].inputs:
            arrays = [request.inputs[name].array for request in requests]
            if name in self._ragged.names:
                gathered[name] = self._ragged.joined(arrays)
            elif len(arrays) == 1 or name in self._shape_tensors:
                gathered[name] = arrays[0]  # shape tensors are equal in a batch
            else:
                gathered[name] = np.concatenate(arrays)
        return gathered | self._ragged.generated(requests)

    def _wanted(self, requests: Sequence[InferenceRequest]) -> list[str]:
        wanted = set(self._states)
        for request in requests:
            if not request.requested_outputs:
                return list(self._outputs)
            wanted.update(request.output_names)
        return [name for name in self._outputs if name in wanted]

    def _wanted_of(self, request: InferenceRequest) -> Collection[str]:
        if not request.requested_outputs:
            return self._outputs
        names = request.output_names
        return dict.fromkeys([*names, *self._states]) if self._states else names

    def _scatter(
        self, requests: Sequence[InferenceRequest], outputs: dict[str, NDArray[np.generic]]
    ) -> None:
        parts = {
            name: self._scattered.cut(name, array, requests)
            for name, array in outputs.items()
            if name in self._scattered
        }
        start = 0
        for place, request in enumerate(requests):
            end = start + request.batch_size
            tensors = []
            for name in self._wanted_of(request):
                if name in parts:
                    array = parts[name][place]
                elif len(requests) > 1:
                    array = outputs[name][start:end]
                else:
                    array = outputs[name]
                datatype = self._outputs[name].datatype
                tensors.append(OutputTensor(name, datatype, array.shape, array))
            start = end
            request.respond(InferenceResponse(self._spec.name, self._version, request.id, tensors))
