"""PT2 archives on a real GPU: exported programs that are moved there, and code compiled for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from serving.backends.pytorch import machine
from serving.errors import ServingError
from tests.serving.backends.compiled_c import GCC, compile_library, needs_gcc
from tests.serving.backends.pytorch import archives, test_init_library
from tests.serving.backends.pytorch.archives import NET_CONFIG, Archive
from tests.serving.backends.pytorch.pt2_checks import ones
from tests.serving.loading import load, outputs_of

pytestmark = pytest.mark.gpu
GPU = "instance_group { kind: KIND_GPU gpus: [0] }\n"


@pytest.fixture(autouse=True)
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("the installed torch is built without CUDA: install a build of torch for CUDA")


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """The same net: as a program of torch.export, compiled for the CPU, compiled for the GPU."""
    pytest.importorskip("triton", reason="AOTInductor compiles for GPUs with triton: install it")
    if GCC is None:
        pytest.skip("AOTInductor compiles with g++, which is not here")
    import torch._inductor

    root = tmp_path_factory.mktemp("pt2_gpu")
    archives.NET.export(root / "exported" / "1")
    on_gpu = Archive(
        archives.Net().cuda(), tuple(item.cuda() for item in archives.NET.args), batches=2
    )
    for name, archive in (("cpu", archives.NET), ("cuda", on_gpu)):
        path = root / name / "1" / "model.pt2"
        path.parent.mkdir(parents=True)
        torch._inductor.aoti_compile_and_package(archive.exported(), package_path=str(path))
    return root


async def answers(directory, group):
    model = await load(NET_CONFIG + group, directory, gpu_count=1)
    for rows in (1, 2, 8):
        outputs = await outputs_of(model, ones(rows))
        np.testing.assert_allclose(outputs["OUTPUT__0"], [[1.1, 1.7, 4.8]] * rows, rtol=1e-3)
        np.testing.assert_array_equal(outputs["OUTPUT__1"], np.full((rows, 2), 6))
    await model.drain_and_close()


@pytest.mark.parametrize("name", ["exported", "cuda"])
async def test_a_program_runs_on_the_gpu(directories, name):
    """PT-12, PT-23."""
    await answers(directories / name, GPU)


async def test_instances_on_one_gpu_may_share_weights(directories):
    """PT-18: each executes in a stream of its own."""
    sharing = 'parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }'

    await answers(directories / "cuda", GPU.replace("{", "{ count: 3", 1) + sharing)


async def test_code_for_the_gpu_runs_where_it_was_compiled_for_under_kind_model(directories):
    """PT-23: KIND_MODEL leaves the device to the model."""
    await answers(directories / "cuda", "instance_group { kind: KIND_MODEL }")


@pytest.mark.parametrize(
    ("name", "group", "words"),
    [
        ("cpu", GPU, "compiled for the CPU and an instance is to run on a GPU"),
        (
            "cuda",
            "instance_group { kind: KIND_CPU }",
            "compiled for cuda and an instance is to run",
        ),
    ],
)
async def test_code_for_another_device_is_refused(directories, name, group, words):
    """PT-23: AOTI_DEVICE_KEY."""
    with pytest.raises(ServingError, match=words):
        await load(NET_CONFIG + group, directories / name, gpu_count=1)


async def test_code_for_another_generation_of_gpus_is_refused(directories, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (3, 5))

    with pytest.raises(ServingError, match="this one has 3.5"):
        await load(NET_CONFIG + GPU, directories / "cuda", gpu_count=1)


def test_this_gpu_can_what_it_says():
    major, minor = torch.cuda.get_device_capability(0)

    machine.check_capability({"AOTI_COMPUTE_CAPABILITY": f"{major}{minor}"}, (major, minor))


@needs_gcc
async def test_the_init_library_is_told_the_gpu(directories, tmp_path, monkeypatch):
    """PT-22: its number, once."""
    journal = tmp_path / "calls"
    monkeypatch.setenv("RECORDED_CALLS", str(journal))
    library = compile_library(test_init_library.RECORDER, tmp_path / "libinit.so")
    text = test_init_library.config(library, GPU.replace("{", "{ count: 2", 1))

    model = await load(text, directories / "exported", gpu_count=1)
    await model.drain_and_close()

    assert journal.read_text() == f"init {directories / 'exported' / '1'} 0\n"
