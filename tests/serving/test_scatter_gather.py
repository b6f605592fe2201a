"""Hundreds of concurrent random requests: each gets its own answer, once, and nothing is left."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

from serving.errors import FailureReason
from serving.model import Model
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from tests.serving.backends import onnx_files
from tests.serving.loading import load, request_of

REQUESTS = 400
SCHEDULERS = {
    "default": "",
    "dynamic": "dynamic_batching { max_queue_delay_microseconds: 200 }",
    "preferred": "dynamic_batching { preferred_batch_size: [4, 8] preserve_ordering: true }",
    "priorities": """dynamic_batching {
        priority_levels: 3 default_priority_level: 2
        default_queue_policy {
            timeout_action: DELAY default_timeout_microseconds: 500 allow_timeout_override: true
        } }""",
}
CONFIG = """name: "m" backend: "BACKEND" max_batch_size: 12
input { name: "X" data_type: TYPE_KIND dims: [-1] }
output { name: "Y" data_type: TYPE_KIND dims: [-1] }
instance_group { count: 2 kind: KIND_CPU }
"""


class Caller:
    """One request, and everything that came back for it."""

    def __init__(self, number: int, kind: str, chance: random.Random) -> None:
        shape = (chance.randint(1, 8), chance.choice((1, 3, 3, 3)))
        values = np.arange(shape[0] * shape[1]).reshape(shape) + number * 1000
        if kind == "STRING":
            self.sent = np.array([str(x).encode() for x in values.ravel()], dtype=np.object_)
            self.sent = self.sent.reshape(shape)
        else:
            self.sent = values.astype(np.float32)
        self.request: InferenceRequest = request_of({"X": self.sent}, id=str(number))
        self.request.priority = chance.randint(0, 4)
        self.request.timeout_us = chance.choice((0, 50))
        self.request.on_response = self.answers_append
        self.answers: list[InferenceResponse] = []
        self.is_answered = asyncio.Event()

    def answers_append(self, response: InferenceResponse) -> None:
        self.answers.append(response)
        self.is_answered.set()

    def outcome(self) -> str:
        (answer,) = self.answers
        assert answer.is_final
        assert answer.id == self.request.id
        if answer.error is not None:
            assert answer.error.failure_reason is FailureReason.CANCELED, answer.error
            return "cancelled"
        np.testing.assert_array_equal(answer.outputs[0].array, self.sent)
        return "ok"


async def send_all(model: Model, kind: str, seed: int) -> list[Caller]:
    chance = random.Random(seed)
    callers = []
    for number in range(REQUESTS):
        caller = Caller(number, kind, chance)
        callers.append(caller)
        model.infer(caller.request)
        if chance.random() < 0.2:
            chance.choice(callers).request.cancel()
        if chance.random() < 0.1:
            await asyncio.sleep(0)
    async with asyncio.timeout(20):
        for caller in callers:
            await caller.is_answered.wait()
    return callers


@pytest.mark.parametrize("kind", ["FP32", "STRING"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("backend", ["identity", "onnxruntime"])
async def test_every_request_gets_its_own_answer_once(tmp_path, backend, scheduler, kind):
    onnx_type = onnx_files.STRING if kind == "STRING" else onnx_files.FLOAT
    onnx_files.write_identity(tmp_path, onnx_type, ("batch", "n"))
    text = CONFIG.replace("BACKEND", backend).replace("TYPE_KIND", f"TYPE_{kind}")
    model = await load(text + SCHEDULERS[scheduler], tmp_path)

    callers = await send_all(model, kind, seed=len(scheduler))
    outcomes = [caller.outcome() for caller in callers]

    assert outcomes.count("ok") > REQUESTS // 2
    assert (model.queued_count, model.inflight_count) == (0, 0)
    snapshot = model.stats.snapshot()
    assert snapshot.success.count == outcomes.count("ok") == sum(snapshot.latency_buckets)
    assert snapshot.failures[FailureReason.CANCELED] == outcomes.count("cancelled")
    sizes = {size: item.count for size, item in snapshot.batches.items()}
    assert sum(size * count for size, count in sizes.items()) == snapshot.inference_count
    assert max(sizes) <= 12
    await model.drain_and_close()
