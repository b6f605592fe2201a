"""Loading an engine: everything up to the driver with real engines and the real runtime; the driver
itself as the machine has it (none in most test runs), or over host memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from serving import cuda_library
from serving.backends.registry import BackendRegistry
from serving.backends.tensorrt import cuda_runtime, library
from serving.backends.tensorrt.backend import TensorRTBackend
from serving.backends.tensorrt.cuda_runtime import CudaDriver, DeviceError
from serving.backends.tensorrt.library import shortened
from serving.errors import InvalidArgumentError, ModelLoadError, UnavailableError
from tests.serving.backends.tensorrt.plans import TENSORRT_PLAN
from tests.serving.loading import context_of

CONFIG = """
name: "m" backend: "tensorrt" max_batch_size: 16
input [ { name: "A" data_type: TYPE_FP32 dims: [4] }, { name: "B" data_type: TYPE_FP32 dims: [4] } ]
output { name: "SUM" data_type: TYPE_FP32 dims: [4] }
instance_group { name: "m_0" kind: KIND_CPU count: 1 }
"""


@pytest.fixture
def directory(add_sub, tmp_path) -> Path:
    folder = tmp_path / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.plan").write_bytes(add_sub.plan)
    return folder


def refusal(error: type[Exception], directory: Path, config: str = CONFIG, **backend_config) -> str:
    context = context_of(config, directory, backend_config=backend_config)
    with pytest.raises(error) as caught:
        TensorRTBackend().load(context)
    return caught.value.message


@pytest.fixture
def no_driver(monkeypatch):
    monkeypatch.setattr(cuda_runtime, "_driver", None)
    monkeypatch.setattr(cuda_library, "LIBRARY", "libcuda_that_is_not_there.so.1")


def test_the_backend_is_known_by_its_name():
    assert isinstance(BackendRegistry().get("tensorrt"), TensorRTBackend)


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_the_model_is_unavailable_and_the_way_out_is_said(directory):
    """The driver is asked before the engine is deserialized: some runtimes crash without one."""
    message = refusal(UnavailableError, directory)
    assert "needs an NVIDIA GPU and its driver" in message
    assert "install the NVIDIA driver" in message
    assert "onnxruntime backend" in message


@pytest.mark.usefixtures("no_driver")
def test_completing_a_config_takes_a_driver_and_says_so(directory):
    """AUT-04."""
    context = context_of('name: "m" backend: "tensorrt"', directory)
    with pytest.raises(UnavailableError, match="needs an NVIDIA GPU and its driver"):
        TensorRTBackend().auto_complete(context)
    TensorRTBackend().auto_complete(context_of(CONFIG, directory))  # nothing to complete


def test_a_missing_runtime_is_told_with_the_command_that_brings_it(directory, monkeypatch):
    library.library.cache_clear()
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    message = refusal(UnavailableError, directory)
    assert "pip install 'conch[tensorrt-rtx]'" in message


def test_an_engine_of_tensorrt_asks_for_tensorrt(directory):
    """TRT-01: the file says which of the two it needs; TensorRT itself is not on PyPI."""
    (directory / "1" / "model.plan").write_bytes(TENSORRT_PLAN)
    library.library.cache_clear()
    message = refusal(UnavailableError, directory)
    assert "pip install 'conch[tensorrt]' with NVIDIA's package index" in message


def test_a_library_that_the_model_asks_for_must_be_the_engines(directory):
    parameters = 'parameters { key: "library" value { string_value: "tensorrt" } }'
    message = refusal(InvalidArgumentError, directory, CONFIG + parameters)
    assert "parameter 'library' says library 'tensorrt'" in message


def test_an_engine_of_another_version_is_refused_before_the_driver_is_asked(directory, monkeypatch):
    """TRT-01."""
    path = directory / "1" / "model.plan"
    content = bytearray(path.read_bytes())
    content[25] += 1  # the minor version
    path.write_bytes(content)
    message = refusal(ModelLoadError, directory)
    assert "1/model.plan was built by TensorRT-RTX 1.8.1.116, but TensorRT-RTX 1.7" in message


def test_a_file_that_is_missing_or_no_engine_is_named(directory):
    (directory / "1" / "model.plan").write_bytes(b"junk")
    assert "1/model.plan is not a TensorRT engine" in refusal(ModelLoadError, directory)
    (directory / "1" / "model.plan").unlink()
    assert "unable to find '1/model.plan'" in refusal(UnavailableError, directory)


@pytest.mark.usefixtures("fake_driver")
def test_an_engine_for_another_gpu_is_refused_with_both_capabilities(directory):
    """TRT-01: the device (8.6 here) against what the header says, before deserializing."""
    path = directory / "1" / "model.plan"
    content = bytearray(path.read_bytes())
    content[32] = 0b1000
    path.write_bytes(content)
    message = refusal(ModelLoadError, directory, CONFIG.replace("KIND_CPU", "KIND_GPU"))
    assert "built for compute capability 8.9, but GPU 0 (Fake GPU) has 8.6" in message


@pytest.mark.usefixtures("fake_driver")
def test_a_model_for_the_cpu_is_refused(directory):
    message = refusal(InvalidArgumentError, directory)
    assert "instance group 'm_0' is KIND_CPU" in message
    assert "write kind: KIND_GPU" in message


@pytest.mark.usefixtures("fake_driver")
def test_what_the_runtime_itself_says_against_an_engine_is_passed_on_short(directory):
    """Here the runtime finds that the driver is none; on a GPU, whatever it finds there."""
    message = refusal(ModelLoadError, directory, CONFIG.replace("KIND_CPU", "KIND_GPU"))
    assert "cannot load 1/model.plan on GPU 0 (Fake GPU): " in message
    assert ".cpp" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("long", "short"),
    [
        (
            "IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (In ScopedCudaStream at "
            "/_src/common/cudaResources.cpp:25 (cudaError 35: CUDA driver version is insufficient "
            "for CUDA runtime version))",
            "Cuda Runtime (cudaError 35: CUDA driver version is insufficient for CUDA runtime "
            "version",
        ),
        (
            "IBuilder::buildSerializedNetwork: Error Code 7: BuildCanceled (Build canceled by user "
            "In next at /_src/optimizer/scopedProgressReporter.cpp:92)",
            "BuildCanceled (Build canceled by user",
        ),
        ("plain\nwords", "plain words"),
    ],
)
def test_errors_of_tensorrt_lose_their_source_files(long, short):
    assert shortened(long) == short


def test_a_driver_without_devices_is_no_driver(fake_driver, built_driver):
    fake_driver.fake_devices(0)
    with pytest.raises(UnavailableError, match="the CUDA driver finds no device"):
        CudaDriver(str(built_driver))


def test_a_driver_that_lacks_a_function_is_too_old(monkeypatch):
    with pytest.raises(UnavailableError, match=r"cannot be loaded \(.*undefined symbol: cuInit"):
        CudaDriver("libc.so.6")


def test_a_device_that_is_not_there_is_named(fake_driver, built_driver):
    with pytest.raises(UnavailableError, match="no GPU 3: the driver knows 1"):
        CudaDriver(str(built_driver)).device(3)


def test_a_call_that_fails_says_which_and_why(device):
    device.enter()
    with pytest.raises(DeviceError, match="cuMemAlloc_v2: invalid argument"):
        device.cuda.new("cuMemAlloc_v2", 0)


def test_the_driver_tells_version_name_and_capability(device):
    device.enter()
    assert device.cuda.version == (13, 0)
    assert (device.name, device.capability) == ("GPU 0 (Fake GPU)", (8, 6))
    assert device.free_bytes() == 1 << 30


def test_a_device_is_held_once_for_all(device):
    """TensorRT's own runtime works in the same context, which must not go away under it."""
    assert device.cuda.device(0) is device
