"""Instances of a model: how many, where, side by side. Spec SCH-150..152, CFG-060..070."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from serving.backends.attributes import BackendAttributes
from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
)
from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.config.decode import InstanceKind
from serving.errors import ServingError
from serving.model import Model
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices
from tests.serving.instance.python_models import CONFIG, context_for
from tests.serving.loading import IDENTITY, context_of, infer, request_of

ROW = np.zeros((1, 1), np.float32)
CPU, GPU, MODEL = InstanceKind.CPU, InstanceKind.GPU, InstanceKind.MODEL


class Meeting(Backend, LoadedModel, ModelInstance):
    """Whoever is created or executes waits until all the others have come as far."""

    name = "meeting"
    attributes = BackendAttributes(parallel_instance_loading=True)

    def __init__(self, parties: int, *, meets: str) -> None:
        self.barrier = threading.Barrier(parties, timeout=10)
        self.meets = meets
        self.placements: list[Placement] = []
        self.running: set[str] = set()

    def load(self, context: ModelContext) -> LoadedModel:
        return self

    def create_instance(self, placement: Placement) -> ModelInstance:
        if self.meets == "create":
            self.barrier.wait()
        self.placements.append(placement)
        return self

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        self.running.add(threading.current_thread().name)
        if self.meets == "execute":
            self.barrier.wait()
        for request in requests:
            request.respond(InferenceResponse(request.model_name, 1, request.id))


async def load(backend: Backend, groups: str, *, name: str = "identity", gpus: int = 0) -> Model:
    services = ModelServices(LoopClock(asyncio.get_running_loop()), gpu_count=gpus)
    text = IDENTITY.replace('"identity" b', f'"{name}" b')
    return await Model.load(context_of(text + groups), backend, services)


@pytest.mark.parametrize(
    ("groups", "places"),
    [
        ("instance_group { kind: KIND_CPU count: 2 }", [(CPU, 0), (CPU, 0)]),
        ("instance_group { kind: KIND_MODEL }", [(MODEL, 0)]),
        ("instance_group { kind: KIND_GPU gpus: [0, 1] }", [(GPU, 0), (GPU, 1)]),
        (
            "instance_group { kind: KIND_GPU count: 2 gpus: [1] } "
            "instance_group { kind: KIND_CPU count: 1 }",
            [(GPU, 1), (GPU, 1), (CPU, 0)],
        ),
    ],
)
async def test_every_group_has_its_count_of_instances_on_each_of_its_devices(groups, places):
    """CFG-061..063, CFG-069."""
    backend = Meeting(len(places), meets="create")

    model = await load(backend, groups, gpus=2)

    found = sorted((item.kind.value, item.device_id) for item in backend.placements)
    assert found == sorted((kind.value, device) for kind, device in places)
    assert len({item.instance_name for item in backend.placements}) == len(places)
    assert model.instance_count == len(places)
    await model.drain_and_close()


async def test_instances_are_created_side_by_side():
    """SCH-152: each one waits for all the others, so one after the other would never end."""
    backend = Meeting(4, meets="create")

    model = await load(backend, "instance_group { kind: KIND_CPU count: 4 }")

    await model.drain_and_close()


BOTH_ARE_THERE = """
import os
import time

class TritonPythonModel:
    def initialize(self, args):
        folder = args["model_repository"]
        open(os.path.join(folder, args["model_instance_name"] + ".started"), "w").close()
        end = time.monotonic() + 20
        while sum(name.endswith(".started") for name in os.listdir(folder)) < 3:
            assert time.monotonic() < end, "the others do not start"
            time.sleep(0.005)

    def execute(self, requests):
        return []
"""


async def test_instances_of_python_models_start_side_by_side_too(tmp_path):
    """SCH-152."""
    groups = CONFIG + "instance_group { kind: KIND_CPU count: 3 }"
    services = ModelServices(LoopClock(asyncio.get_running_loop()))
    backend = BackendRegistry().get("python")

    model = await Model.load(context_for(tmp_path, BOTH_ARE_THERE, groups), backend, services)

    await model.drain_and_close()


async def test_different_models_execute_at_the_same_time():
    """SCH-150: each request waits for the others, of its own model and of the other one."""
    backend = Meeting(4, meets="execute")
    group = "instance_group { kind: KIND_CPU count: 2 }"
    models = [await load(backend, group, name=name) for name in ("a", "b")]

    answers = await asyncio.gather(
        *(infer(model, request_of({"IN": ROW}, model=model.name)) for model in models * 2)
    )

    assert [answer.error for answer in answers] == [None] * 4
    assert len(backend.running) == 4
    for model in models:
        await model.drain_and_close()


async def test_an_instance_executes_one_batch_at_a_time_in_its_own_thread():
    """SCH-151: the blocking execution policy."""
    backend = Meeting(1, meets="nothing")
    model = await load(backend, "instance_group { kind: KIND_CPU count: 1 }")

    await asyncio.gather(*(infer(model, request_of({"IN": ROW})) for _ in range(20)))

    assert backend.running == {"identity_0_0"}
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("group", "gpus", "words"),
    [
        ("kind: KIND_GPU", 0, "asks for KIND_GPU, but this machine has no GPU"),
        ("kind: KIND_GPU gpus: [2]", 2, "asks for GPU 2, but this machine has GPUs 0 to 1"),
    ],
)
async def test_a_device_that_is_not_there_fails_the_load(group, gpus, words):
    with pytest.raises(ServingError, match=words):
        await load(Meeting(1, meets="nothing"), f"instance_group {{ {group} }}", gpus=gpus)
