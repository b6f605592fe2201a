"""Models that do not finish: everyone gets one answer, processes go, threads are left."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.errors import ServingError, UnavailableError
from serving.model import Model
from serving.response import InferenceResponse
from serving.services import ModelServices
from tests.serving.instance.python_models import context_for
from tests.serving.instance.python_models import request as python_request
from tests.serving.loading import IDENTITY, context_of, load, request_of
from tests.waiting import wait_until

ROW = np.zeros((1, 4), np.float32)
SLOW = IDENTITY + 'parameters { key: "execute_delay_ms" value { string_value: "400" } }'
HANGING = """
import time

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(60)
"""
TOO_LATE = UnavailableError("server is stopping")


class Answers:
    """What came for each request, by its number."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.errors: list[ServingError | None] = []
        self.count: Counter[str] = Counter()

    def ask(self, *ids: str) -> None:
        for name in ids:
            request = request_of({"IN": ROW}, id=name)
            request.on_response = self._take
            self.model.infer(request)

    def _take(self, response: InferenceResponse) -> None:
        self.count[response.id] += 1
        self.errors.append(response.error)


@pytest.mark.parametrize(
    "scheduling", ["", "dynamic_batching { }", "dynamic_batching { preserve_ordering: true }"]
)
async def test_running_and_waiting_requests_are_answered_once(scheduling):
    model = await load(SLOW + scheduling)
    answers = Answers(model)
    answers.ask("a", "b", "c")
    await asyncio.sleep(0.05)
    answers.ask("d")

    model.abandon(TOO_LATE)

    assert answers.errors == [TOO_LATE] * 4
    assert model.inflight_count == model.queued_count == 0
    await model.drain_and_close()
    await asyncio.sleep(0.5)  # the thread comes back after all
    assert answers.count == Counter("abcd")


async def test_new_requests_are_refused_afterwards():
    model = await load(SLOW)
    answers = Answers(model)
    model.abandon(TOO_LATE)

    answers.ask("late")

    assert "takes no new requests" in answers.errors[0].message
    await model.drain_and_close()


async def test_a_drain_ends_at_its_timeout_and_leaves_the_thread(caplog):
    model = await load(SLOW, drain_timeout_s=0.05)
    answers = Answers(model)
    answers.ask("a", "b")

    with caplog.at_level(logging.WARNING):
        await asyncio.wait_for(model.drain_and_close(), 0.3)

    assert [type(error) for error in answers.errors] == [UnavailableError] * 2
    assert "did not finish within the drain timeout of 0.05 s" in answers.errors[0].message
    assert model.left_running == ["identity_0_0"]
    assert "are left running until the server exits: identity_0_0" in caplog.text


async def test_a_drain_in_time_abandons_nothing():
    model = await load(SLOW, drain_timeout_s=5.0)
    answers = Answers(model)
    answers.ask("a", "b")

    await model.drain_and_close()

    assert answers.errors == [None, None]
    assert model.left_running == []


async def test_the_process_of_a_model_that_hangs_is_killed(tmp_path: Path):
    context = context_for(tmp_path, HANGING)
    model = await Model.load(
        context,
        BackendRegistry().get("python"),
        ModelServices(LoopClock(asyncio.get_running_loop()), drain_timeout_s=0.1),
    )
    (child,) = [item for item in psutil.Process().children() if "m_0_0" in item.cmdline()]
    got: list[InferenceResponse] = []
    request = python_request()
    request.on_response = got.append
    model.infer(request)

    await asyncio.wait_for(model.drain_and_close(), 5.0)

    assert [type(response.error) for response in got] == [UnavailableError]
    assert "within the drain timeout of 0.1 s" in got[0].error.message
    assert model.left_running == []
    await wait_until(lambda: not child.is_running())


async def test_a_surplus_instance_that_hangs_leaves_at_the_timeout():
    two = SLOW + "instance_group { count: 2 kind: KIND_CPU }"
    model = await load(two, drain_timeout_s=0.05)
    answers = Answers(model)
    answers.ask("a", "b")
    one = SLOW + "instance_group { count: 1 kind: KIND_CPU }"
    change = await model.prepare_update(context_of(one))

    await asyncio.wait_for(change.commit(), 0.3)

    (error,) = answers.errors
    assert "was removed, and the request did not finish within the drain timeout" in error.message
    await model.drain_and_close()
