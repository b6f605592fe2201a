"""One instance: its stream, memory and contexts, and the way of a batch through them.

A batch is gathered into pinned memory, copied in with one transfer for each input, run, copied out
with one transfer for each output, and waited for once. All of it belongs to the instance's thread;
nothing is shared but the engine. Source: spec TRT-04, CFG-035, CFG-066, CFG-081, CFG-082.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.base import ModelContext, TensorInstance
from serving.backends.tensorrt import graphs, profiles
from serving.backends.tensorrt.buffers import InputMemory, OutputMemory, byte_size, largest_bytes
from serving.backends.tensorrt.cuda_runtime import DeviceBuffer, Graph, Stream
from serving.backends.tensorrt.engine import DeviceEngine, GrowingOutput, ProfileContext
from serving.backends.tensorrt.graphs import GraphSpec
from serving.backends.tensorrt.options import EngineSettings
from serving.backends.tensorrt.profiles import Profile
from serving.backends.tensorrt.signature import EngineTensor
from serving.errors import BackendError, InvalidArgumentError
from serving.request import InferenceRequest

logger = logging.getLogger(__name__)
Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(slots=True)
class _Recorded:
    """A CUDA graph. Its context is used for nothing else, as changing it would break the graph."""

    spec: GraphSpec
    context: ProfileContext
    graph: Graph
    output_shapes: dict[str, Shape]


@dataclass(slots=True)
class _Lane:
    """One profile of the instance."""

    profile: Profile
    context: ProfileContext
    recorded: list[_Recorded]


class TensorRTInstance(TensorInstance):
    def __init__(
        self,
        context: ModelContext,
        engine: DeviceEngine,
        settings: EngineSettings,
        numbers: Sequence[int],
    ) -> None:
        """`numbers`: the optimization profiles to choose from. Raises: ServingError."""
        super().__init__(context)
        engine.device.enter()
        self._engine = engine
        self._cuda = engine.device.cuda
        self._settings = settings
        self._config = context.config
        self._scratch: DeviceBuffer | None = None
        self._inputs: dict[str, InputMemory] = {}
        self._results: dict[str, OutputMemory] = {}
        self._lanes: list[_Lane] = []
        self._streams: list[Stream] = []
        self._tensors = {item.name: item for item in engine.signature.tensors}
        try:
            self._stream = self._new_stream()
            self._output_stream = self._new_stream() if settings.has_output_stream else self._stream
            used = [engine.signature.profiles[number] for number in numbers]
            self._prepare_memory(used)
            self._prepare_lanes(used)
        except BaseException:
            self.close()
            raise
        self._profiles = used

    # Preparation

    def _new_stream(self) -> Stream:
        settings = self._settings
        stream = Stream(
            self._cuda, priority=settings.priority.value, waits_busily=settings.waits_busily
        )
        self._streams.append(stream)
        return stream

    def _dtype(self, tensor: EngineTensor) -> np.dtype[Any]:
        return tensor.datatype(self._spec.name).dtype

    def _prepare_memory(self, used: Sequence[Profile]) -> None:
        settings = self._settings
        for tensor in self._engine.signature.inputs:
            dtype = self._dtype(tensor)
            size = largest_bytes(tensor, used, dtype)
            self._inputs[tensor.name] = InputMemory(
                self._cuda, tensor, dtype, size, settings.pins_inputs
            )
        for tensor in self._engine.signature.outputs:
            self._results[tensor.name] = OutputMemory(
                self._cuda, tensor, self._dtype(tensor), pinned=settings.pins_outputs
            )

    def _prepare_lanes(self, used: Sequence[Profile]) -> None:
        for profile in used:
            context = self._engine.context(profile, self._stream.handle, self._settings.allocation)
            self._lanes.append(_Lane(profile, context, []))
            self._stream.drain()
            self._bind_inputs(context)
            self._measure_outputs(context, profile)
        # The memory has its final size and place only now.
        for lane in self._lanes:
            self._bind_outputs(lane.context)
        for lane in self._lanes:
            self._record_graphs(lane)

    def _bind_inputs(self, context: ProfileContext) -> None:
        for name, memory in self._inputs.items():
            context.bind(name, memory.address)

    def _measure_outputs(self, context: ProfileContext, profile: Profile) -> None:
        """How much room each output needs, or that only a run will tell."""
        for name, held in profile.values.items():
            values = np.array(held.best, self._inputs[name].dtype)
            shaped = values.reshape(self._tensors[name].shape)
            self._inputs[name].place(shaped, shaped.shape)
        context.set_shapes(
            {name: known.best for name, known in profile.shapes.items()}, has_values=True
        )
        for name, memory in self._results.items():
            shape, most = context.shape(name), context.max_bytes(name)
            if most < 0 or min(shape, default=0) < 0:
                memory.growing = memory.growing or GrowingOutput(self._engine.device, name)
            else:
                memory.reserve(max(most, byte_size(shape, memory.dtype)))

    def _bind_outputs(self, context: ProfileContext) -> None:
        for name, memory in self._results.items():
            if memory.growing is not None:
                context.allocate_by(name, memory.growing)
            else:
                context.bind(name, memory.address)

    def _record_graphs(self, lane: _Lane) -> None:
        specs = graphs.specs_of(self._spec, self._config, lane.profile)
        if not specs:
            return
        reason = self._reason_against_graphs(lane)
        if reason:
            logger.warning(
                "no CUDA graph is recorded model=%s profile=%d: %s",
                self._spec.name,
                lane.profile.number,
                reason,
            )
            return
        if self._scratch is None:
            self._scratch = self._new_scratch()
        for spec in specs:
            lane.recorded.append(self._record(lane.profile, spec))

    def _new_scratch(self) -> DeviceBuffer:
        """Shared by all graphs of the instance, which run one after the other."""
        sizes = [self._engine.scratch_bytes(lane.profile) for lane in self._lanes]
        return DeviceBuffer(self._cuda, max(sizes), "the scratch memory of CUDA graphs")

    def _reason_against_graphs(self, lane: _Lane) -> str:
        if self._has_own_rules:
            return "it has ragged inputs, batch_input or shape tensors"
        for name, memory in self._results.items():
            if memory.growing is not None:
                return f"the size of output '{name}' depends on the data"
        if not lane.context.can_be_captured(self._stream.handle):
            return "TensorRT says that the engine cannot be recorded"
        return ""

    def _record(self, profile: Profile, spec: GraphSpec) -> _Recorded:
        assert self._scratch is not None
        context = self._engine.context(profile, self._stream.handle, "USER_MANAGED")
        try:
            context.use_scratch(self._scratch)
            self._bind_inputs(context)
            self._bind_outputs(context)
            context.set_shapes(spec.shapes, has_values=False)
            # The first run after a change of shapes prepares things that no graph may hold.
            context.enqueue(self._stream.handle)
            self._stream.drain()
            graph = Graph.capture(
                self._cuda, self._stream, lambda: context.enqueue(self._stream.handle)
            )
        except BaseException:
            context.close()
            raise
        shapes = {name: context.shape(name) for name in self._results}
        return _Recorded(spec, context, graph, shapes)

    # The way of a batch

    def _gather(self, requests: Sequence[InferenceRequest]) -> dict[str, Array]:
        if self._has_own_rules:
            return super()._gather(requests)
        return {
            name: self._inputs[name].gather([item.inputs[name].array for item in requests])
            for name in requests[0].inputs
        }

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        batch_size = self._rows if self._spec.has_batch_axis else 0
        feed = {name: self._as_engine_takes(name, inputs, batch_size) for name in self._inputs}
        shapes = {name: array.shape for name, array in feed.items()}
        values = {
            name: tuple(int(value) for value in feed[name].ravel())
            for name, memory in self._inputs.items()
            if memory.is_shape_tensor
        }
        profile = profiles.choose(self._profiles, shapes, values, self._spec.name)
        lane = next(item for item in self._lanes if item.profile is profile)
        recorded = _chosen(lane.recorded, shapes)
        taken = shapes if recorded is None else recorded.spec.shapes
        for name, memory in self._inputs.items():
            memory.place(feed[name], taken[name])
        results = self._execute(lane, recorded, taken, output_names)
        if recorded is not None and batch_size:
            # The graph may have been recorded for more rows than these.
            results = {name: array[:batch_size] for name, array in results.items()}
        return {name: self._as_config_says(name, results[name], batch_size) for name in results}

    def _execute(
        self,
        lane: _Lane,
        recorded: _Recorded | None,
        shapes: Mapping[str, Shape],
        output_names: Sequence[str],
    ) -> dict[str, Array]:
        """Hand the batch to the device and wait for it."""
        gate = self._engine.gate or contextlib.nullcontext()
        out = self._output_stream
        try:
            with gate:
                for name, memory in self._inputs.items():
                    memory.upload(self._stream, shapes[name])
                found = self._launch(lane, recorded, shapes)
                if out is not self._stream:
                    self._stream.mark()
                    out.follow(self._stream)
                for name in output_names:
                    self._results[name].download(out, found[name])
                out.mark()
            out.wait()
        except BaseException:
            # Nothing of the failed batch may still write when the next one is placed.
            self._cuda.try_call("cuStreamSynchronize", self._stream.handle)
            self._cuda.try_call("cuStreamSynchronize", out.handle)
            raise
        return {name: self._results[name].take(found[name]) for name in output_names}

    def _launch(
        self, lane: _Lane, recorded: _Recorded | None, shapes: Mapping[str, Shape]
    ) -> dict[str, Shape]:
        """Returns the shapes of the outputs."""
        if recorded is not None:
            recorded.graph.launch(self._stream)
            return recorded.output_shapes
        context = lane.context
        has_values = any(memory.is_shape_tensor for memory in self._inputs.values())
        context.set_shapes(shapes, has_values=has_values)
        found = {}
        for name, memory in self._results.items():
            if memory.growing is None:
                found[name] = context.shape(name)
            else:
                memory.growing.error = None
        try:
            context.enqueue(self._stream.handle)
        except BackendError:
            for memory in self._results.values():
                if memory.growing is not None and memory.growing.error is not None:
                    raise memory.growing.error from None
            raise
        for name, memory in self._results.items():
            if memory.growing is not None:
                found[name] = memory.growing.shape
        return found

    def _as_engine_takes(self, name: str, inputs: Mapping[str, Array], batch_size: int) -> Array:
        array = inputs.get(name)
        if array is None:
            raise InvalidArgumentError(
                f"input '{name}' of model '{self._spec.name}' is missing: TensorRT takes no "
                "optional inputs; remove `optional` from the config, or send it"
            )
        tensor = self._tensors[name]
        if tensor.is_shape_tensor and batch_size:
            return np.concatenate([np.array([batch_size], array.dtype), array.ravel()])
        if not tensor.shape and array.size == 1:
            return array.reshape(())
        return array

    def _as_config_says(self, name: str, array: Array, batch_size: int) -> Array:
        tensor = self._tensors[name]
        if batch_size and tensor.is_shape_tensor:
            # Its first value is the batch; every row of the batch gets the others.
            return np.broadcast_to(array.ravel()[1:], (batch_size, array.size - 1))
        if not tensor.shape and not self._spec.has_batch_axis:
            return array.reshape(1)
        return array

    def close(self) -> None:
        self._engine.device.enter()
        for stream in self._streams:
            self._cuda.try_call("cuStreamSynchronize", stream.handle)
        for lane in self._lanes:
            for recorded in lane.recorded:
                recorded.graph.close()
                recorded.context.close()
            lane.context.close()
        self._lanes.clear()
        for given in self._inputs.values():
            given.free()
        for result in self._results.values():
            result.free()
        if self._scratch is not None:
            self._scratch.free()
        for stream in self._streams:
            stream.close()
        self._streams.clear()


def _chosen(recorded: Sequence[_Recorded], shapes: Mapping[str, Shape]) -> _Recorded | None:
    spec = graphs.choose([item.spec for item in recorded], shapes)
    return next((item for item in recorded if item.spec is spec), None)
