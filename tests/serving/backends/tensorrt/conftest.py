"""A CUDA driver over host memory, and real engines of TensorRT-RTX, each built once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import cuda_library
from serving.backends.tensorrt import cuda_runtime
from serving.backends.tensorrt.build import BuildOptions, BuiltEngine, Progress, build
from serving.backends.tensorrt.cuda_runtime import CudaDriver, Device
from tests.serving.backends import onnx_files
from tests.serving.backends.tensorrt import fake_device

AMPERE = BuildOptions("tensorrt_rtx", capabilities=("8.6",))


@pytest.fixture(scope="session")
def built_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_device.build_driver(tmp_path_factory.mktemp("cuda_compute"))


@pytest.fixture
def fake_driver(built_driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """In place of the machine's own; nothing of it may be left when the test is over."""
    monkeypatch.setattr(cuda_runtime, "_driver", None)
    monkeypatch.setattr(cuda_library, "LIBRARY", str(built_driver))
    library = ctypes.CDLL(str(built_driver))
    library.fake_limit.argtypes = [ctypes.c_size_t]
    yield library
    library.fake_limit(1 << 30)
    library.fake_devices(1)
    left = (library.fake_memories(), library.fake_pinned(), library.fake_handles())
    assert left == (0, 0, 0), "device memory, pinned memory, streams and graphs"


@pytest.fixture
def device(fake_driver: Any, built_driver: Path) -> Device:
    return CudaDriver(str(built_driver)).device(0)


@pytest.fixture(scope="session")
def add_sub_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A + B -> SUM, A - B -> DIFFERENCE, four columns."""
    return onnx_files.write_add_sub(tmp_path_factory.mktemp("add_sub"))


@pytest.fixture(scope="session")
def add_sub(add_sub_onnx: Path) -> BuiltEngine:
    """Two profiles: 1 to 4 rows, and 4 to 16."""
    profiles = [
        dict.fromkeys(("A", "B"), ((low, 4), (best, 4), (high, 4)))
        for low, best, high in ((1, 1, 4), (4, 8, 16))
    ]
    options = BuildOptions("tensorrt_rtx", profiles=profiles, capabilities=("8.6",))
    return build(add_sub_onnx, options, Progress(lambda phase, fraction: None))
