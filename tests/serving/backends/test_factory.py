"""Answers from threads of a backend's own, and backends that say whether they are ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

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
from serving.backends.factory import ResponseFactory
from serving.clock import LoopClock
from serving.errors import InvalidArgumentError
from serving.model import Model
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.services import ModelServices
from tests.serving.loading import IDENTITY, context_of, request_of

DECOUPLED = IDENTITY.replace('backend: "identity"', 'backend: "own"') + (
    "model_transaction_policy { decoupled: true }"
)
ROW = np.ones((1, 2), np.float32)


class Own(Backend, LoadedModel, ModelInstance):
    """Hands each request's factory to `answer`, in a thread that outlives `execute`."""

    name = "own"

    def __init__(self, answer: Callable[[ResponseFactory], None]) -> None:
        self.answer = answer
        self.threads: list[threading.Thread] = []
        self.ready: object = True

    def load(self, context: ModelContext) -> LoadedModel:
        self.context = context
        return self

    def create_instance(self, placement: Placement) -> ModelInstance:
        return self

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        for request in requests:
            factory = ResponseFactory(self.context.spec, 1, request)
            factory.release_inputs()
            assert not request.inputs
            thread = threading.Thread(target=self.answer, args=(factory,))
            self.threads.append(thread)
            thread.start()

    @property
    def has_ready_hook(self) -> bool:
        return True

    def is_ready(self) -> bool:
        if isinstance(self.ready, Exception):
            raise self.ready
        return bool(self.ready)

    def close(self) -> None:
        for thread in self.threads:
            thread.join(10)


async def loaded(backend: Own) -> Model:
    services = ModelServices(LoopClock(asyncio.get_running_loop()))
    return await Model.load(context_of(DECOUPLED), backend, services)


async def answers_of(answer: Callable[[ResponseFactory], None], **fields) -> list:
    model = await loaded(Own(answer))
    got: list[InferenceResponse] = []
    over = asyncio.get_running_loop().create_future()

    def take(response: InferenceResponse) -> None:
        got.append(response)
        if response.is_final:
            over.set_result(None)

    request = request_of({"IN": ROW}, **fields)
    request.on_response = take
    model.infer(request)
    await asyncio.wait_for(over, 10)
    await model.drain_and_close()
    return got


async def test_be_007_any_number_of_answers_from_another_thread_then_the_final_flag():
    """The inputs have been released before the first one."""

    def answer(factory: ResponseFactory) -> None:
        for number in range(3):
            factory.send({"OUT": ROW * number})
        factory.finish()
        factory.finish()

    got = await answers_of(answer)

    assert [float(item.outputs[0].array[0, 0]) for item in got[:3]] == [0, 1, 2]
    assert [item.is_final for item in got] == [False, False, False, True]
    assert got[3].is_null


async def test_be_007_the_last_answer_may_carry_the_final_flag_itself():
    got = await answers_of(lambda factory: factory.send({"OUT": ROW}, is_final=True))

    assert [(item.is_final, item.is_null) for item in got] == [(True, False)]


async def test_be_008_parameters_are_booleans_numbers_and_texts():
    values = {"flag": True, "count": 3, "share": 0.5, "text": "é"}

    got = await answers_of(lambda f: f.send({"OUT": ROW}, parameters=values, is_final=True))

    assert got[0].parameters == values


async def test_an_error_is_the_last_answer_and_nothing_follows_it():
    raised: list[Exception] = []

    def answer(factory: ResponseFactory) -> None:
        factory.send_error(InvalidArgumentError("not this"))
        try:
            factory.send({"OUT": ROW})
        except RuntimeError as error:
            raised.append(error)

    got = await answers_of(answer)

    assert [str(item.error) for item in got] == ["not this"]
    assert "has had its final response" in str(raised[0])


@pytest.mark.parametrize(
    ("ready", "wanted"), [(True, True), (False, False), (ValueError("no licence"), False)]
)
async def test_be_009_a_model_in_a_thread_says_itself_whether_it_is_ready(ready, wanted):
    """Asked in the instance's thread; an error is a no."""
    backend = Own(lambda factory: factory.finish())
    model = await loaded(backend)
    backend.ready = ready

    assert model.has_ready_hook
    assert await model.check_ready() is wanted
    assert model.is_ready  # the instance itself runs
    await model.drain_and_close()
