"""What lives on a device: the runtime and engine that instances share, and their contexts.

The narrow door between the rest of the backend and TensorRT's objects. A `DeviceEngine` is made by
the first thread that needs it and shared; a `ProfileContext` belongs to one instance's thread.
Source: spec TRT-01, TRT-03, TRT-04.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.backends.attributes import ExecutionPolicy
from serving.backends.tensorrt.cuda_runtime import Device, DeviceBuffer
from serving.backends.tensorrt.library import Library
from serving.backends.tensorrt.options import EngineSettings
from serving.backends.tensorrt.profiles import Profile, ShapeRange
from serving.backends.tensorrt.signature import EngineSignature, EngineTensor
from serving.config.plan_header import validity_words
from serving.errors import BackendError, InvalidArgumentError, ModelLoadError

logger = logging.getLogger(__name__)
Shape = tuple[int, ...]


class DeviceEngine:
    """One engine file on one device, and on one of its DLA cores where asked."""

    def __init__(
        self,
        library: Library,
        path: Path,
        device: Device,
        settings: EngineSettings,
        dla: int | None,
    ) -> None:
        """Raises: ModelLoadError naming the file and the cause in TensorRT's words, short."""
        device.enter()
        self.device = device
        self._library = library
        self._file = f"{path.parent.name}/{path.name}"
        self._creation = threading.Lock()
        self.gate = threading.Lock() if settings.policy is ExecutionPolicy.DEVICE_BLOCKING else None
        """Held while work is handed to the device; None: everybody hands over when they like."""
        library.load_plugins(settings.plugins)
        self._runtime: Any = self._new_runtime(settings, dla)
        self._engine: Any = self._deserialize(path)
        self.signature = signature_of(self._engine)

    def _new_runtime(self, settings: EngineSettings, dla: int | None) -> Any:
        library = self._library
        library.log.forget_errors()
        runtime = library.module.Runtime(library.log)
        if settings.is_version_compatible:
            runtime.engine_host_code_allowed = True
        if dla is not None:
            if dla not in range(runtime.num_DLA_cores):
                raise InvalidArgumentError(
                    f"secondary_devices asks for DLA core {dla}, but {self.device.name} has "
                    f"{runtime.num_DLA_cores}: remove it"
                )
            runtime.DLA_core = dla
        return runtime

    def _deserialize(self, path: Path) -> Any:
        log = self._library.log
        with (
            path.open("rb") as file,
            # The runtime copies what it needs: a file of gigabytes is never read in twice.
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            self._check_validity(bytes(content[: self._header_size()]))
            log.forget_errors()
            try:
                engine = self._runtime.deserialize_cuda_engine(content)
            except Exception as error:
                raise self._refused(log.first_error() or str(error)) from error
        if engine is None:
            raise self._refused(log.first_error())
        return engine

    def _header_size(self) -> int:
        return int(getattr(self._runtime, "engine_header_size", 0))

    def _check_validity(self, header: bytes) -> None:
        """What the runtime itself says of the header; TensorRT-RTX only."""
        ask = getattr(self._runtime, "get_engine_validity", None)
        if ask is None:
            return
        verdict, reasons = ask(header)
        if verdict.name == "INVALID":
            raise self._refused(validity_words(int(reasons)))
        if verdict.name == "SUBOPTIMAL":
            logger.warning(
                "%s runs slower than it could on %s: build it anew for that GPU",
                self._file,
                self.device.name,
            )

    def _refused(self, cause: str) -> ModelLoadError:
        return ModelLoadError(
            f"{self._library.product} {self._library.version} cannot load {self._file} on "
            f"{self.device.name}: {cause or 'it gives no reason'}"
        )

    def context(self, profile: Profile, stream: int, allocation: str) -> ProfileContext:
        """A new execution context. `allocation` names an ExecutionContextAllocationStrategy."""
        strategy = getattr(self._library.module.ExecutionContextAllocationStrategy, allocation)
        log = self._library.log
        with self._creation:
            log.forget_errors()
            raw = self._engine.create_execution_context(strategy)
            if raw is None:
                raise self._refused(
                    f"no execution context for profile {profile.number}: {log.first_error()}"
                )
        context = ProfileContext(self._library, raw, profile)
        context.select(stream)
        return context

    def scratch_bytes(self, profile: Profile) -> int:
        """What a context of this profile needs besides its tensors."""
        return int(self._engine.get_device_memory_size_for_profile_v2(profile.number))

    def close(self) -> None:
        """After the last context."""
        self.device.enter()
        self._engine = self._runtime = None


class ProfileContext:
    """An IExecutionContext that stays with one profile; errors in short sentences."""

    def __init__(self, library: Library, raw: Any, profile: Profile) -> None:
        self.profile = profile
        self._library = library
        self._raw: Any = raw
        self._shapes: dict[str, Shape] = {}
        self._allocators: list[Any] = []

    def select(self, stream: int) -> None:
        if not self._raw.set_optimization_profile_async(self.profile.number, stream):
            raise self._failed(f"profile {self.profile.number} cannot be selected")

    def bind(self, name: str, address: int) -> None:
        if not self._raw.set_tensor_address(name, address):
            raise self._failed(f"no memory can be set for '{name}'")

    def allocate_by(self, name: str, output: GrowingOutput) -> None:
        """The output's size is known only while it is computed (TRT-04)."""
        allocator = _new_allocator(self._library.module, output)
        self._allocators.append(allocator)
        if not self._raw.set_output_allocator(name, allocator):
            raise self._failed(f"output '{name}' takes no allocator")

    def use_scratch(self, memory: DeviceBuffer) -> None:
        self._raw.set_device_memory(memory.address, memory.size)

    def set_shapes(self, shapes: Mapping[str, Shape], *, has_values: bool) -> None:
        """`has_values`: shape tensors hold new values, so that outputs may change all the same."""
        changed = {name: shape for name, shape in shapes.items() if self._shapes.get(name) != shape}
        if changed:
            self._library.log.forget_errors()
        for name, shape in changed.items():
            self._shapes.pop(name, None)
            if not self._raw.set_input_shape(name, shape):
                raise self._failed(f"input '{name}' cannot have shape {list(shape)}")
            self._shapes[name] = shape
        if not changed and not has_values:
            return
        try:
            missing = self._raw.infer_shapes()
        except RuntimeError as error:
            self._shapes.clear()
            raise self._failed(f"the shapes do not fit together ({error})") from error
        if missing:
            self._shapes.clear()
            raise self._failed(f"nothing is known of {', '.join(missing)}")

    def shape(self, name: str) -> Shape:
        """Of an output, for the inputs set last; -1 where only the run will tell."""
        return tuple(self._raw.get_tensor_shape(name))

    def max_bytes(self, name: str) -> int:
        """An upper bound of an output's size over the profile; -1 where there is none."""
        return int(self._raw.get_max_output_size(name))

    def can_be_captured(self, stream: int) -> bool:
        ask = getattr(self._raw, "is_stream_capturable", None)
        return ask is None or bool(ask(stream))

    def enqueue(self, stream: int) -> None:
        self._library.log.forget_errors()
        if not self._raw.execute_async_v3(stream):
            raise self._failed("the run was refused")

    def close(self) -> None:
        self._raw = None
        self._allocators.clear()

    def _failed(self, what: str) -> BackendError:
        cause = self._library.log.first_error()
        return BackendError(f"TensorRT: {what}" + (f": {cause}" if cause else ""))


class GrowingOutput:
    """Device memory of an output whose size only the run tells."""

    def __init__(self, device: Device, name: str) -> None:
        self._device = device
        self._name = name
        self._memory: DeviceBuffer | None = None
        self.shape: Shape = ()
        self.error: BackendError | None = None

    @property
    def address(self) -> int:
        return 0 if self._memory is None else self._memory.address

    def reallocate(self, size: int) -> int:
        """Called by TensorRT within a run; 0 tells it that there is no memory."""
        if self._memory is None or self._memory.size < size:
            self.free()
            try:
                self._memory = DeviceBuffer(self._device.cuda, size, f"output '{self._name}'")
            except BackendError as error:
                self.error = error
                return 0
        return self._memory.address

    def free(self) -> None:
        if self._memory is not None:
            self._memory.free()
            self._memory = None


def _new_allocator(module: Any, output: GrowingOutput) -> Any:
    """An IOutputAllocator; its class can only be made when the runtime is there."""

    class Allocator(module.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IOutputAllocator.__init__(self)

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            return output.reallocate(size)  # cuMemAlloc aligns to 256 bytes, the most ever asked

        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            return output.reallocate(size)

        def notify_shape(self, name: str, shape: Any) -> None:
            output.shape = tuple(shape)

    return Allocator()


def signature_of(engine: Any) -> EngineSignature:
    """What an ICudaEngine says of its inputs, outputs and profiles."""
    inputs: list[EngineTensor] = []
    outputs: list[EngineTensor] = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        tensor = EngineTensor(
            name,
            engine.get_tensor_dtype(name).name,
            tuple(engine.get_tensor_shape(name)),
            engine.get_tensor_location(name).name == "HOST",
            engine.get_tensor_format(name).name == "LINEAR",
        )
        is_input = engine.get_tensor_mode(name).name == "INPUT"
        (inputs if is_input else outputs).append(tensor)
    profiles = [_profile(engine, inputs, item) for item in range(engine.num_optimization_profiles)]
    return EngineSignature(tuple(inputs), tuple(outputs), tuple(profiles))


def _profile(engine: Any, inputs: list[EngineTensor], number: int) -> Profile:
    shapes, values = {}, {}
    for item in inputs:
        known = [tuple(dims) for dims in engine.get_tensor_profile_shape(item.name, number)]
        shapes[item.name] = ShapeRange(*(known if len(known) == 3 else [item.shape] * 3))
        if item.is_shape_tensor:
            # The bindings name the parameters the other way round; this is their order.
            held = [tuple(row) for row in engine.get_tensor_profile_values(number, item.name)]
            if len(held) == 3:
                values[item.name] = ShapeRange(*held)
    return Profile(number, shapes, values)
