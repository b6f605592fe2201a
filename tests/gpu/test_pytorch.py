"""The PyTorch backend on a real GPU: placement, streams, memory, and errors that CUDA does not
survive. What needs no device is in tests/serving/backends/pytorch."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from serving.datatypes import BY_NAME
from serving.errors import ErrorCode
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import config, failure, io, parameter, row, served
from tests.serving.loading import infer, load, outputs_of, request_of
from tests.waiting import wait_until

GPU = "instance_group { kind: KIND_GPU gpus: [0] }\n"
MIB = 1 << 20
_NO_CUDA = "the installed torch is built without CUDA: install a build of torch for CUDA"


@pytest.fixture(autouse=True)
def cuda():
    if not torch.cuda.is_available():
        pytest.skip(_NO_CUDA)


pytestmark = pytest.mark.gpu


class Where(nn.Module):
    """Whether the input is on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.full_like(x, float(x.is_cuda))


class OwnDevice(nn.Module):
    """Computes where its weight is, whatever device its input is on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), 3.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.to(self.weight.device) * self.weight
        return y, torch.full_like(x, float(x.is_cuda))


class Heavy(nn.Module):
    """64 MiB of weights, and as much while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16 * MIB))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.weight * 2).mean()


class Lookup(nn.Module):
    """A kernel's assertion fails where an index is too large."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 1)

    def forward(self, index: Tensor) -> Tensor:
        return self.table(index).squeeze(-1)


@pytest.mark.parametrize(("kind", "on_gpu"), [("KIND_GPU", 1), ("KIND_CPU", 0), ("KIND_MODEL", 0)])
async def test_inputs_are_where_the_instance_is(tmp_path, kind, on_gpu):
    """PT-23."""
    group = f"instance_group {{ kind: {kind} }}"
    model = await served(tmp_path, Where(), config("x", ["y"], group), gpu_count=1)

    assert (await outputs_of(model, {"x": row(0)}))["y"].item() == on_gpu
    await model.drain_and_close()


async def test_a_module_of_kind_model_stays_on_the_device_that_it_was_saved_on(tmp_path):
    """PT-23, CFG-069."""
    text = config("x", ["y", "is_cuda"], "instance_group { kind: KIND_MODEL }")
    model = await served(tmp_path, OwnDevice().cuda(), text)

    outputs = await outputs_of(model, {"x": row(2)})

    assert (outputs["y"].item(), outputs["is_cuda"].item()) == (6, 0)
    await model.drain_and_close()


async def test_a_net_on_the_gpu_answers_as_on_the_cpu(tmp_path):
    """PT-23: batches of requests too, by several instances in streams of their own."""
    net = modules.seeded_net()
    group = "instance_group { count: 3 kind: KIND_GPU gpus: [0] }\n"
    model = await served(
        tmp_path, net, config("x", ["y"], group + "dynamic_batching {}"), gpu_count=1
    )
    sent = [np.full((1 + i % 3, 4), i, np.float32) for i in range(30)]

    answers = await asyncio.gather(*(outputs_of(model, {"x": x}) for x in sent))

    for x, answer in zip(sent, answers, strict=True):
        with torch.no_grad():
            wanted = net(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(answer["y"], wanted, rtol=1e-3, atol=1e-4)
    await model.drain_and_close()


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP16", "BF16", "FP64"])
async def test_data_types_cross_to_the_gpu_and_back(tmp_path, datatype):
    text = 'name: "m" backend: "pytorch" max_batch_size: 8\n' + io("input", "x", datatype=datatype)
    text += io("output", "y", datatype=datatype) + GPU
    model = await served(tmp_path, modules.One(), text, gpu_count=1)
    sent = np.array([[1, 0, 1] * 40_000], np.float32).astype(BY_NAME[datatype].dtype)
    sent.flags.writeable = False

    answer = (await outputs_of(model, {"x": sent}))["y"]

    assert answer.dtype == sent.dtype
    np.testing.assert_array_equal(answer, sent)
    await model.drain_and_close()


@pytest.mark.parametrize(("shared", "modules_held"), [("false", 3), ("true", 1)])
async def test_shared_weights_are_in_memory_once(tmp_path, shared, modules_held):
    """PT-18."""
    extra = "instance_group { count: 3 kind: KIND_GPU gpus: [0] }\n" + parameter(
        "ENABLE_WEIGHT_SHARING", shared
    )
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(0)

    model = await served(tmp_path, Heavy(), config("x", ["y"], extra), gpu_count=1)

    held = (torch.cuda.memory_allocated(0) - before) / (64 * MIB)
    assert modules_held - 0.1 < held < modules_held + 0.5
    await model.drain_and_close()


@pytest.mark.parametrize("shared", ["false", "true"])
async def test_an_unloaded_model_gives_its_memory_back(tmp_path, shared):
    """PT-18: torch itself would keep it for later."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(0)
    text = config("x", ["y"], GPU + parameter("ENABLE_WEIGHT_SHARING", shared))
    model = await served(tmp_path, Heavy(), text, gpu_count=1)
    await outputs_of(model, {"x": row(1)})

    await model.drain_and_close()

    assert torch.cuda.memory_reserved(0) - before < 8 * MIB


@pytest.mark.parametrize("name", ["ENABLE_CACHE_CLEANING", "CACHE_CLEANING_ENABLED"])
async def test_the_cache_is_emptied_after_an_execution_where_it_is_asked_for(tmp_path, name):
    """PT-19: what a run took beside the weights goes back to the device."""
    kept = {}
    for value in ("false", "true"):
        torch.cuda.empty_cache()
        text = config("x", ["y"], GPU + parameter(name, value))
        model = await served(tmp_path, Heavy(), text, gpu_count=1)
        loaded = torch.cuda.memory_reserved(0)
        assert (await outputs_of(model, {"x": row(1)}))["y"].item() == 3
        kept[value] = torch.cuda.memory_reserved(0) - loaded
        await model.drain_and_close()

    assert kept["true"] < kept["false"]


async def test_a_module_without_cudnn_answers_alike(tmp_path):
    """PT-17."""
    net = nn.Conv1d(2, 3, 3).eval()
    sent = np.ones((1, 2, 8), np.float32)
    with torch.no_grad():
        wanted = net(torch.from_numpy(sent)).numpy()
    for value in ("false", "true"):
        text = config("x", ["y"], GPU + parameter("DISABLE_CUDNN", value)).replace("[-1]", "[-1,8]")
        text = text.replace("dims: [-1,8]", "dims: [-1,-1]")
        model = await served(tmp_path, Named(net), text, gpu_count=1)
        answer = (await outputs_of(model, {"x": sent}))["y"]
        np.testing.assert_allclose(answer, wanted, rtol=1e-3, atol=1e-4)
        await model.drain_and_close()


class Named(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


async def test_a_module_traced_on_the_gpu_is_explained_on_the_cpu(tmp_path):
    """PT-30: a trace has the device of each tensor that it makes written into it."""

    def traced(x: Tensor) -> Tensor:
        return x + torch.ones(1, device=x.device)

    (tmp_path / "1").mkdir()
    torch.jit.trace(traced, torch.ones(1, 1, device="cuda")).save(str(tmp_path / "1" / "model.pt"))
    model = await load(config("x", ["y"], "instance_group { kind: KIND_CPU }"), tmp_path)

    error = await failure(model, {"x": row(1)})

    assert "bound to the device on which it was traced" in error.message
    await model.drain_and_close()


async def test_a_process_whose_gpu_is_lost_starts_anew(tmp_path):
    """PT-28: a real assertion in a kernel, in an instance process."""
    text = 'name: "m" backend: "pytorch" max_batch_size: 8\n'
    text += io("input", "index", datatype="INT64")
    text += io("output", "y") + GPU + parameter("instance_isolation", "process")
    modules.write(Lookup(), tmp_path)
    model = await load(text, tmp_path, gpu_count=1)
    good, bad = (np.array([[index]], np.int64) for index in (1, 99))
    before = (await outputs_of(model, {"index": good}))["y"]

    answer = await infer(model, request_of({"index": bad}))
    await wait_until(lambda: not model.is_ready, 30)
    await wait_until(lambda: model.is_ready, 60)
    after = (await outputs_of(model, {"index": good}))["y"]

    assert answer.error is not None
    assert answer.error.code is ErrorCode.INTERNAL
    assert "CUDA_LAUNCH_BLOCKING=1" in answer.error.message
    np.testing.assert_array_equal(before, after)
    await model.drain_and_close()


async def test_a_module_written_in_python_runs_on_its_gpu(tmp_path):
    """PT-23, PT-24: the process sees one GPU, which is number 0 to it."""
    source = (
        "import torch\n\n"
        "class Where(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x * 2, torch.full_like(x, float(x.is_cuda))\n"
    )
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.py").write_text(source)
    off = json.dumps({"disable": True}).replace('"', '\\"')
    text = config("x", ["y", "is_cuda"], GPU + 'runtime: "model.py"\n')
    text += parameter("TORCH_COMPILE_OPTIONAL_PARAMETERS", off)
    model = await load(text, tmp_path, gpu_count=1)

    outputs = await outputs_of(model, {"x": row(2)})

    assert (outputs["y"].item(), outputs["is_cuda"].item()) == (4, 1)
    await model.drain_and_close()
