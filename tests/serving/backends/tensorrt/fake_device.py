"""An engine that a Python function computes, on a CUDA driver whose device memory is the host's.

It honours what the backend uses of ICudaEngine and IExecutionContext: shapes before runs, an
address for every tensor, allocators, addresses read at the time of the run, as CUDA graphs do.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.backends.tensorrt.cuda_runtime import Device
from serving.backends.tensorrt.engine import DeviceEngine
from serving.backends.tensorrt.library import library
from serving.backends.tensorrt.options import EngineSettings
from serving.backends.tensorrt.profiles import Profile
from serving.backends.tensorrt.signature import EngineSignature, EngineTensor, Shape

SOURCE = Path(__file__).parents[3] / "data/fake_cuda_compute.c"
Arrays = dict[str, np.ndarray]
_TYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
}
_Work = ctypes.CFUNCTYPE(None)


def build_driver(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler, to stand in for the CUDA driver")
    path = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


@dataclass
class FakeModel:
    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    profiles: tuple[Profile, ...]
    compute: Callable[[Arrays], Arrays]
    shapes: Callable[[Mapping[str, Shape], Mapping[str, Shape]], dict[str, Shape]]
    """Output shapes from input shapes and the values of shape tensors; -1 for what a run tells."""
    contexts: list[FakeContext] = field(default_factory=list)

    @property
    def signature(self) -> EngineSignature:
        return EngineSignature(self.inputs, self.outputs, self.profiles)


class FakeContext:
    def __init__(self, model: FakeModel, driver: ctypes.CDLL, strategy: str) -> None:
        self.model, self.strategy, self.profile, self.runs = model, strategy, -1, 0
        self._driver = driver
        self._shapes: dict[str, Shape] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self._scratch = strategy != "USER_MANAGED"
        self._recorded: list[Any] = []

    def set_optimization_profile_async(self, number: int, stream: int) -> bool:
        self.profile = number
        return stream > 0

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return address > 0

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        self._allocators[name] = allocator
        return True

    def set_device_memory(self, address: int, size: int) -> None:
        self._scratch = address > 0 and size > 0

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        self._shapes[name] = tuple(shape)
        return self.model.profiles[self.profile].shapes[name].admits(shape)

    def _read(self, name: str, shape: Shape) -> np.ndarray:
        tensor = next(item for item in self.model.inputs if item.name == name)
        dtype = np.dtype(_TYPES[tensor.type_name])
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(self._addresses[name], size), dtype).reshape(shape)

    def _values(self) -> dict[str, Shape]:
        return {
            item.name: tuple(int(v) for v in self._read(item.name, self._shapes[item.name]))
            for item in self.model.inputs
            if item.is_shape_tensor
        }

    def infer_shapes(self) -> list[str]:
        missing = [item.name for item in self.model.inputs if item.name not in self._shapes]
        if not missing:
            self._found = self.model.shapes(self._shapes, self._values())
        return missing

    def get_tensor_shape(self, name: str) -> Shape:
        return self._found[name]

    def get_max_output_size(self, name: str) -> int:
        if min(self._found[name], default=0) < 0:
            return -1
        profile = self.model.profiles[self.profile]
        highs = {key: known.high for key, known in profile.shapes.items()}
        values = {key: known.high for key, known in profile.values.items()}
        tensor = next(item for item in self.model.outputs if item.name == name)
        shape = self.model.shapes(highs, values)[name]
        return int(np.prod(shape)) * np.dtype(_TYPES[tensor.type_name]).itemsize

    def is_stream_capturable(self, stream: int) -> bool:
        return True

    def execute_async_v3(self, stream: int) -> bool:
        if self._driver.fake_is_recording():
            shapes = dict(self._shapes)
            work = _Work(lambda: self._compute(shapes))
            self._recorded.append(work)
            self._driver.fake_record(work)
            return True
        return self._scratch and self._compute(self._shapes)

    def _compute(self, shapes: Mapping[str, Shape]) -> bool:
        self.runs += 1
        results = self.model.compute(
            {name: self._read(name, shape) for name, shape in shapes.items()}
        )
        for name, array in results.items():
            array = np.ascontiguousarray(array)
            address = self._addresses.get(name, 0)
            if name in self._allocators:
                allocator = self._allocators[name]
                address = allocator.reallocate_output(name, 0, array.nbytes, 256)
                if not address:
                    return False
                allocator.notify_shape(name, array.shape)
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
        return True


class FakeDeviceEngine(DeviceEngine):
    """The real one but for the two objects that take a GPU."""

    def __init__(self, model: FakeModel, driver: ctypes.CDLL, device: Device) -> None:
        self.model, self._fake_driver = model, driver
        super().__init__(
            library("tensorrt_rtx"),
            Path("/nonexistent/1/model.plan"),
            device,
            EngineSettings(),
            None,
        )
        self.signature = model.signature

    def _new_runtime(self, settings: EngineSettings, dla: int | None) -> Any:
        return object()

    def _deserialize(self, path: Path) -> Any:
        return _FakeEngine(self.model, self._fake_driver)


class _FakeEngine:
    num_io_tensors = 0
    num_optimization_profiles = 0

    def __init__(self, model: FakeModel, driver: ctypes.CDLL) -> None:
        self._model, self._driver = model, driver

    def create_execution_context(self, strategy: Any) -> FakeContext:
        made = FakeContext(self._model, self._driver, strategy.name)
        self._model.contexts.append(made)
        return made

    def get_device_memory_size_for_profile_v2(self, number: int) -> int:
        return 1024


def shapes_of(names: Sequence[str], source: str) -> Callable[..., dict[str, Shape]]:
    """Outputs of the shape of one input."""
    return lambda shapes, values: dict.fromkeys(names, shapes[source])
