"""What torch says when it fails, in one sentence; and instances that cannot go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from serving.backends.pytorch import failures
from serving.errors import BackendError, ErrorCode, InstanceLostError
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import config, failure, row, served
from tests.serving.loading import outputs_of

OTHER_DEVICE = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and "
    "cuda:0!"
)
ASSERT = (
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
)


@pytest.mark.parametrize(
    "text",
    [
        "mat1 and mat2 shapes cannot be multiplied (1x3 and 4x2)",
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        "Given groups=1, weight of size [8, 3, 3, 3], expected 3 channels, got 4",
        "shape '[2, 3]' is invalid for input of size 7",
        "index out of range in self",
    ],
)
def test_shapes_are_the_callers_mistake(text):
    error = failures.execution_error("m", RuntimeError(f"{text}\nException raised from f.cpp:3"))

    assert error.code is ErrorCode.INVALID_ARG
    assert error.message == f"PyTorch execute failure: model 'm': {text}"


def test_memory_that_is_not_there_is_told_without_the_place_in_the_sources():
    with pytest.raises(RuntimeError, match="enforce fail at") as caught:
        torch.empty(2**55)

    error = failures.execution_error("m", caught.value)

    words = (
        "PyTorch execute failure: model 'm': DefaultCPUAllocator: can't allocate memory: you tried"
    )
    assert error.message.startswith(words)
    assert error.code is ErrorCode.INTERNAL


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 must have the same dtype, but got Long and Float"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        type("AcceleratorError", (RuntimeError,), {})("CUDA error: out of memory"),
        ValueError("the model's own words"),
        ValueError("unknown word 'CUDA error: device-side assert triggered'"),
    ],
)
def test_what_else_goes_wrong_is_the_models(error):
    """Out of memory among them: the next request may find some."""
    found = failures.execution_error("m", error)

    assert type(found) is BackendError
    assert str(error) in found.message


def test_a_module_traced_on_another_device_is_explained():
    """PT-30."""
    error = failures.execution_error("m", RuntimeError(OTHER_DEVICE))

    assert "bound to the device on which it was traced: name that GPU in gpus" in error.message
    assert "script the module" in error.message


@pytest.mark.parametrize(
    "text",
    [
        ASSERT,
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure",
    ],
)
def test_an_error_that_cuda_does_not_survive_loses_the_instance(text):
    """PT-28: which request caused it is not known, and how to find out is said."""
    error = failures.execution_error("m", RuntimeError(text))

    assert isinstance(error, InstanceLostError)
    assert "may come from an earlier request" in error.message
    assert "CUDA_LAUNCH_BLOCKING=1" in error.message
    assert "\n" not in error.message


def test_an_accelerators_error_loses_the_instance_whatever_it_says():
    """PT-28: the class that torch raises for errors of the device."""
    assert issubclass(torch.AcceleratorError, RuntimeError)
    error = type("AcceleratorError", (RuntimeError,), {})("CUBLAS_STATUS_NOT_INITIALIZED")

    assert isinstance(failures.execution_error("m", error), InstanceLostError)


def test_a_load_error_names_model_file_and_cause():
    """PT-29."""
    error = failures.load_error("m", Path("/r/m/3/net.pt"), RuntimeError("bad\nC++ trace"))

    assert error.message == "failed to load model 'm': 3/net.pt: bad"
    assert error.code is ErrorCode.INTERNAL


def test_a_very_long_cause_is_cut():
    assert len(failures.cause_of(ValueError("x" * 5000))) < 500


async def test_after_a_lost_gpu_the_model_is_not_ready_and_says_why(tmp_path):
    """PT-28: an instance in a thread of the server cannot start its GPU anew."""
    model = await served(tmp_path, modules.Lost(), config("x", ["y"]))
    assert (await outputs_of(model, {"x": row(0)}))["y"].item() == 0

    first = await failure(model, {"x": row(1)})
    second = await failure(model, {"x": row(0)})

    assert "device-side assert triggered" in first.message
    assert not model.is_ready
    assert second.code is ErrorCode.UNAVAILABLE
    for words in ("is lost", "device-side assert triggered", "instance_isolation"):
        assert words in second.message
    await model.drain_and_close()


async def test_other_instances_go_on_when_one_is_lost(tmp_path):
    """PT-28: the model is ready while one of them is."""
    two = "instance_group { count: 2 kind: KIND_CPU }"
    model = await served(tmp_path, modules.Lost(), config("x", ["y"], two))

    await failure(model, {"x": row(1)})
    answers = [await outputs_of(model, {"x": row(0)}) for _ in range(3)]

    assert [answer["y"].item() for answer in answers] == [0, 0, 0]
    assert np.isfinite(answers[0]["y"]).all()
    await model.drain_and_close()
