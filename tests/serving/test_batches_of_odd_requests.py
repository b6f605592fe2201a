"""Batches of empty, ragged and incomplete requests, on both instance hosts. SCH-018, SCH-033."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.model import Model
from serving.response import InferenceResponse
from serving.services import ModelServices
from tests.serving.instance.python_models import context_for
from tests.serving.loading import IDENTITY, infer, load, request_of

WAITING = "dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 20000 }"
ISOLATION = 'parameters {{ key: "instance_isolation" value {{ string_value: "{}" }} }}'
TWO = IDENTITY + (
    'input { name: "MORE" data_type: TYPE_FP32 dims: [-1] optional: true } '
    'output { name: "SAME" data_type: TYPE_FP32 dims: [-1] } '
)


async def identity(text: str, isolation: str, directory: Path) -> Model:
    return await load(text + WAITING + ISOLATION.format(isolation), directory)


async def answers_of(model: Model, *inputs: dict[str, Any]) -> list[InferenceResponse]:
    """Of requests that are sent in one turn of the loop."""
    answers = await asyncio.gather(*(infer(model, request_of(item)) for item in inputs))
    assert [answer.error for answer in answers] == [None] * len(inputs)
    return answers


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_requests_without_elements_share_a_batch(tmp_path, isolation):
    """SCH-018."""
    model = await identity(IDENTITY, isolation, tmp_path)

    answers = await answers_of(model, *[{"IN": np.zeros((rows, 0), np.float32)} for rows in (1, 2)])

    assert [answer.outputs[0].shape for answer in answers] == [(1, 0), (2, 0)]
    assert model.stats.snapshot().batches.keys() == {3}
    await model.drain_and_close()


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_requests_with_and_without_an_optional_input_run_apart(tmp_path, isolation):
    """SCH-033: only requests with the same inputs share a batch."""
    model = await identity(TWO, isolation, tmp_path)
    one, two = np.full((1, 2), 1, np.float32), np.full((1, 2), 2, np.float32)

    answers = await answers_of(
        model, {"IN": one}, {"IN": two}, {"IN": one, "MORE": two}, {"IN": two, "MORE": one}
    )

    values = [{out.name: out.array[0, 0] for out in answer.outputs} for answer in answers]
    assert values == [{"OUT": 1}, {"OUT": 2}, {"OUT": 1, "SAME": 2}, {"OUT": 2, "SAME": 1}]
    snapshot = model.stats.snapshot()
    assert snapshot.execution_count == 2
    assert snapshot.close_reasons == {"optional": 1, "delay": 1}
    await model.drain_and_close()


LENGTHS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(
                [[len(requests), pb_utils.get_input_tensor_by_name(r, "IN").as_numpy().shape[1]]],
                np.float32))])
            for r in requests
        ]
"""
RAGGED = f"""
name: "m" backend: "python" max_batch_size: 8 {WAITING}
input {{ name: "IN" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [2] }}
"""


async def test_a_python_model_gets_the_tensors_of_each_request_as_they_were_sent(tmp_path):
    """CFG-036: ragged requests come together, and are not joined."""
    services = ModelServices(LoopClock(asyncio.get_running_loop()))
    backend = BackendRegistry().get("python")
    model = await Model.load(context_for(tmp_path, LENGTHS, RAGGED), backend, services)

    answers = await answers_of(
        model, *[{"IN": np.zeros((1, size), np.float32)} for size in (3, 0, 5)]
    )

    assert [answer.outputs[0].array.tolist() for answer in answers] == [
        [[3, 3]],
        [[3, 0]],
        [[3, 5]],
    ]
    await model.drain_and_close()
