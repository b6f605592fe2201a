"""Models that answer a request several times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from serving.backends.base import (
    Backend,
    ExecutionTimes,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
)
from serving.clock import LoopClock
from serving.metrics_config import MetricsConfig
from serving.model import Model
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices
from tests.serving.loading import IDENTITY, context_of, infer, request_of

DEFAULT_METRICS = MetricsConfig()


class Counting(Backend, LoadedModel, ModelInstance):
    """Answers 0, 1, 2 and an empty final marker, from a thread of its own or at once."""

    name = "counting"

    def __init__(self, *, own_thread: bool) -> None:
        self.own_thread = own_thread

    def load(self, context: ModelContext) -> LoadedModel:
        return self

    def create_instance(self, placement: Placement) -> ModelInstance:
        return self

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        for request in requests:
            if self.own_thread:
                threading.Thread(target=self.answer, args=(request,)).start()
            else:
                self.answer(request)

    @staticmethod
    def answer(request: InferenceRequest) -> None:
        for number in range(3):
            request.respond(InferenceResponse("m", 1, str(number), is_final=False))
        request.respond(InferenceResponse("m", 1, request.id, is_null=True))


async def load(
    *, own_thread: bool, decoupled: bool, metrics: MetricsConfig = DEFAULT_METRICS
) -> Model:
    text = IDENTITY + f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}"
    clock = LoopClock(asyncio.get_running_loop())
    backend = Counting(own_thread=own_thread)
    services = ModelServices(clock, metrics_config=metrics)
    return await Model.load(context_of(text), backend, services)


@pytest.mark.parametrize("own_thread", [False, True])
async def test_every_response_comes_in_order_and_the_request_counts_once(own_thread):
    """SCH-100."""
    model = await load(own_thread=own_thread, decoupled=True)
    seen: list[str] = []
    finished = asyncio.Event()

    def collect(response: InferenceResponse) -> None:
        seen.append("end" if response.is_null else response.id)
        if response.is_final:
            finished.set()

    request = request_of({"IN": np.zeros((1, 1), np.float32)})
    request.on_response = collect
    model.infer(request)
    await asyncio.wait_for(finished.wait(), 10)
    await model.drain_and_close()

    assert seen == ["0", "1", "2", "end"]
    assert model.inflight_count == 0
    snapshot = model.stats.snapshot()
    assert snapshot.success.count == snapshot.execution_count == 1
    assert snapshot.compute_infer.total_ns >= 0
    assert snapshot.compute_output.total_ns >= 0


async def test_closing_waits_for_responses_that_come_after_the_execution():
    model = await load(own_thread=True, decoupled=True)
    ended: list[bool] = []
    for _ in range(20):
        request = request_of({"IN": np.zeros((1, 1), np.float32)})
        request.on_response = lambda response: ended.append(response.is_final)
        model.infer(request)

    await model.drain_and_close()

    assert ended.count(True) == 20


async def test_a_model_that_is_not_decoupled_must_not_answer_in_parts(caplog):
    """SCH-103."""
    model = await load(own_thread=False, decoupled=False)

    response = await infer(model, request_of({"IN": np.zeros((1, 1), np.float32)}))

    assert "is not decoupled: expected a single response" in response.error.message
    await model.drain_and_close()
    assert model.inflight_count == 0


class Scripted(Counting):
    """Answers with the responses that the test says, for all requests in turn."""

    def __init__(self, *script: InferenceResponse) -> None:
        super().__init__(own_thread=False)
        self.script = script

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        for response in self.script:
            for request in requests:
                answer = replace(response, id=request.id)
                request.respond(answer)


async def responses_of(backend: Backend, *ids: str) -> dict[str, list[bool]]:
    """Whether each response was final, by request, of requests that run in one batch."""
    text = IDENTITY + "dynamic_batching {} model_transaction_policy { decoupled: true }"
    clock = LoopClock(asyncio.get_running_loop())
    model = await Model.load(context_of(text), backend, ModelServices(clock))
    seen: dict[str, list[bool]] = {}
    for name in ids:
        request = request_of({"IN": np.zeros((1, 1), np.float32)}, id=name)
        request.on_response = lambda response: seen.setdefault(response.id, []).append(
            response.is_final
        )
        model.infer(request)
    await model.drain_and_close()
    return seen


PART = InferenceResponse("m", 1, is_final=False)
LAST = InferenceResponse("m", 1)
EMPTY = InferenceResponse("m", 1, is_null=True)


@pytest.mark.parametrize(
    ("script", "finals"),
    [
        ([EMPTY], [True]),
        ([LAST], [True]),
        ([PART, PART, LAST], [False, False, True]),
        ([PART, EMPTY], [False, True]),
        ([LAST, PART, EMPTY], [True]),  # whatever comes after the final one has nobody to go to
    ],
)
async def test_responses_of_a_batch_come_in_any_number_and_end_once(script, finals):
    """SCH-100."""
    seen = await responses_of(Scripted(*script), "a", "b")

    assert seen == {"a": finals, "b": finals}
