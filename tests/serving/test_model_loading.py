"""Loads that are given up or go wrong half-way leave nothing behind."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from serving.backends.base import Backend, LoadedModel, ModelContext, ModelInstance, Placement
from serving.clock import LoopClock
from serving.errors import ModelLoadError
from serving.model import Model
from serving.services import ModelServices
from tests.serving.backends import onnx_files
from tests.serving.loading import IDENTITY, context_of, load, outputs_of


class SlowBackend(Backend, LoadedModel):
    """Blocks in `load` or in `create_instance` until the test lets go."""

    name = "slow"

    def __init__(self, blocks_in: str) -> None:
        self.blocks_in = blocks_in
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.unloaded = threading.Event()

    def _block(self, where: str) -> None:
        if where == self.blocks_in:
            self.entered.set()
            assert self.let_go.wait(10)

    def load(self, context: ModelContext) -> LoadedModel:
        self._block("load")
        return self

    def create_instance(self, placement: Placement) -> ModelInstance:
        self._block("create_instance")
        raise OSError("this device is not there")

    def unload(self) -> None:
        self.unloaded.set()


def start(backend: Backend) -> asyncio.Task[Model]:
    clock = LoopClock(asyncio.get_running_loop())
    return asyncio.ensure_future(Model.load(context_of(IDENTITY), backend, ModelServices(clock)))


async def happens(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, 10)


@pytest.mark.parametrize("blocks_in", ["load", "create_instance"])
async def test_a_load_that_is_given_up_ends_at_once_and_is_unloaded_when_it_comes_back(blocks_in):
    backend = SlowBackend(blocks_in)
    loading = start(backend)
    assert await happens(backend.entered)

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert not backend.unloaded.is_set()
    backend.let_go.set()

    assert await happens(backend.unloaded)


async def test_a_load_that_fails_after_the_file_was_loaded_unloads_it():
    backend = SlowBackend("nowhere")

    with pytest.raises(ModelLoadError, match="initialize: instance 'identity_0_0' could not be"):
        await start(backend)

    assert backend.unloaded.is_set()


async def test_any_model_can_run_in_child_processes(tmp_path):
    onnx_files.write_identity(tmp_path)
    model = await load(
        """name: "m" backend: "onnxruntime" max_batch_size: 8
        input { name: "X" data_type: TYPE_FP32 dims: [4] }
        output { name: "Y" data_type: TYPE_FP32 dims: [4] }
        dynamic_batching {}
        parameters { key: "instance_isolation" value { string_value: "process" } }""",
        tmp_path,
    )
    sent = [np.full((1, 4), number, np.float32) for number in range(8)]

    answers = await asyncio.gather(*(outputs_of(model, {"X": array}) for array in sent))

    for array, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer["Y"], array)
    assert model.instance_count == 2
    await model.drain_and_close()
