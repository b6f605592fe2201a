"""What the parameters do to modules that run."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from serving.backends.base import Placement
from serving.backends.pytorch import switches
from serving.backends.pytorch.backend import PyTorchBackend
from serving.config.decode import InstanceKind
from serving.config.torch_parameters import TorchOptions
from serving.errors import ServingError
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import config, parameter, row, served
from tests.serving.loading import context_of, outputs_of


@pytest.fixture
def threads():
    """The number of threads in this process, put back afterwards."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


async def test_instances_have_a_module_each_unless_they_share(tmp_path, caplog):
    """PT-18: four executions by two instances in turn."""
    two = "instance_group { count: 2 kind: KIND_CPU }\n"
    found = {}
    for shared in ("false", "true"):
        text = config("x", ["y"], two + parameter("ENABLE_WEIGHT_SHARING", shared))
        model = await served(tmp_path, modules.Counter(), text)
        found[shared] = [(await outputs_of(model, {"x": row(0)}))["y"].item() for _ in range(4)]
        await model.drain_and_close()

    assert found == {"false": [1, 1, 2, 2], "true": [1, 2, 3, 4]}
    assert caplog.text.count("keeps tensors between calls") == 1


@pytest.mark.parametrize(("mode", "differentiable"), [("true", 0), ("false", 1)])
async def test_inference_mode_is_on_unless_the_config_says_otherwise(
    tmp_path, mode, differentiable
):
    """PT-16."""
    text = config("x", ["y", "can_be_differentiated"], parameter("INFERENCE_MODE", mode))
    model = await served(tmp_path, modules.Gradient(), text)

    outputs = await outputs_of(model, {"x": row(2)})

    assert outputs["y"].item() == 2
    assert outputs["can_be_differentiated"].item() == differentiable
    await model.drain_and_close()


def switch_states():
    """What torch has; its own setters tell what was before."""
    native = torch._C
    executor = native._jit_set_profiling_executor(True)
    native._jit_set_profiling_executor(executor)
    profiling = native._jit_set_profiling_mode(True)
    native._jit_set_profiling_mode(profiling)
    return {
        "optimized_execution": native._get_graph_executor_optimize(),
        "jit_executor": executor,
        "jit_profiling": profiling,
        "tensor_fuser": native._jit_texpr_fuser_enabled(),
        "cudnn": torch.backends.cudnn.enabled,
    }


@pytest.mark.parametrize("name", ["optimized_execution", "jit_executor", "jit_profiling",
                                  "tensor_fuser", "cudnn"])  # fmt: skip
def test_a_switch_holds_for_executions_of_its_own_model(name):
    """PT-15, PT-17, PT-21: the next model has its own settings again."""
    with switches.modes(TorchOptions(**{name: False})):
        assert switch_states() == dict.fromkeys(switch_states(), True) | {name: False}
    with switches.modes(TorchOptions()):
        assert switch_states() == dict.fromkeys(switch_states(), True)


@pytest.mark.parametrize("name", ["ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING",
                                  "ENABLE_TENSOR_FUSER", "INFERENCE_MODE"])  # fmt: skip
async def test_a_module_answers_alike_without_an_optimisation(tmp_path, name):
    """PT-15, PT-16, PT-21."""
    net = modules.seeded_net()
    off = parameter(name, "false") + parameter("DISABLE_OPTIMIZED_EXECUTION", "true")
    model = await served(tmp_path, net, config("x", ["y"], off))
    sent = np.arange(8, dtype=np.float32).reshape(2, 4)
    with torch.no_grad():
        wanted = net(torch.from_numpy(sent)).numpy()

    for _ in range(3):  # a profiling executor changes the graph after the first runs
        answer = (await outputs_of(model, {"x": sent}))["y"]
        np.testing.assert_allclose(answer, wanted, rtol=1e-5)
    await model.drain_and_close()


def test_the_first_model_that_sets_a_number_of_threads_wins(caplog):
    """PT-20: the log names it."""
    counts = switches.ThreadCounts()

    assert counts.claim("INTRA_OP_THREAD_COUNT", 0, "silent") == 0
    assert counts.claim("INTRA_OP_THREAD_COUNT", 4, "first") == 4
    assert counts.claim("INTRA_OP_THREAD_COUNT", 4, "same") == 4
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert counts.claim("INTRA_OP_THREAD_COUNT", 2, "second") == 4
    assert counts.claim("INTRA_OP_THREAD_COUNT", 0, "silent") == 4
    assert counts.claim("INTER_OP_THREAD_COUNT", 2, "second") == 2

    (said,) = [record.getMessage() for record in caplog.records]
    assert "of model 'second' is 2 and has no effect" in said
    assert "model 'first' was the first to set it, to 4" in said


def test_a_number_of_threads_holds_in_the_process(threads, monkeypatch):
    """PT-20."""
    monkeypatch.setattr(switches, "_counts", switches.ThreadCounts())

    switches.apply_threads(TorchOptions(intra_op_threads=3), "first")
    switches.apply_threads(TorchOptions(intra_op_threads=7), "second")

    assert torch.get_num_threads() == 3


def test_threads_between_operations_are_set_once_and_the_log_says_so(caplog):
    """PT-20: torch takes no second number."""
    first = torch.get_num_interop_threads() + 1
    what = "parameter 'INTER_OP_THREAD_COUNT' of model 'm'"
    for count in (first, first + 1):
        switches.set_interop_threads(count, what)

    assert f"{what} is {first + 1} and has no effect" in caplog.text
    assert "load this model first" in caplog.text


@pytest.mark.parametrize("value", ["yes", "2"])
async def test_a_value_that_cannot_be_fails_the_load(tmp_path, value):
    """PT-15 to PT-21."""
    with pytest.raises(ServingError, match="'INFERENCE_MODE' is .*: it must be true or false"):
        await served(
            tmp_path, modules.One(), config("x", ["y"], parameter("INFERENCE_MODE", value))
        )


def test_instances_of_a_gpu_need_a_torch_for_cuda(tmp_path):
    """PT-23."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: tests/gpu has the test")
    modules.write(modules.One(), tmp_path)
    loaded = PyTorchBackend().load(context_of(config("x", ["y"]), tmp_path))

    with pytest.raises(ServingError, match=r"finds no CUDA device: install a build of torch"):
        loaded.create_instance(Placement("m_0", InstanceKind.GPU))


async def test_a_module_of_kind_model_keeps_its_own_devices(tmp_path):
    """PT-23, CFG-069: and its inputs stay on the CPU."""
    text = config("x", ["y"], "instance_group { kind: KIND_MODEL }")
    model = await served(tmp_path, modules.seeded_net(), text)

    assert (await outputs_of(model, {"x": row(1, 2, 3, 4)}))["y"].shape == (1, 2)
    await model.drain_and_close()
