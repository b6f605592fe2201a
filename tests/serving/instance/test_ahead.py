"""The batch that waits at an instance behind the one that executes: real processes and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from serving.clock import LoopClock
from serving.errors import InstanceLostError
from serving.instance.base import Batch
from serving.instance.burst import AHEAD_NS, BURST_NS, BurstLimit
from serving.instance.limits import ProcessLimits
from serving.instance.pool import InstancePool
from serving.instance.process import ProcessHost
from serving.instance.restart import RestartPolicy
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.scheduling.default import DefaultScheduler
from tests.serving.instance.python_models import context_for, hosted, output, request
from tests.serving.instance.test_thread import Scripted, host_of, ok
from tests.waiting import wait_until

# Sleeps for so many seconds, or ends its process; answers with the number of the process.
SLEEPS = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            wanted = float(request.inputs()[0].as_numpy()[0])
            if wanted < 0:
                time.sleep(-wanted)
                os._exit(3)
            time.sleep(wanted)
            number = request.inputs()[0].as_numpy() * 0 + os.getpid()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number)]))
        return answers
"""
# Looks whether it is cancelled, for so many seconds; answers how many were, when they began.
LOOKS = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    cancelled = 0
    def execute(self, requests):
        for request in requests:
            self.cancelled += request.is_cancelled()
            wanted = request.inputs()[0].as_numpy()
            end = time.monotonic() + wanted[0]
            while time.monotonic() < end:
                time.sleep(0.001)
                request.is_cancelled()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", wanted * 0 + self.cancelled)])]
"""
BRIEF_S = 0.002


class Asking:
    """A default scheduler before one host."""

    def __init__(self, host: ProcessHost) -> None:
        self.host = host
        pool = InstancePool([host])
        host.on_state_change = lambda: pool.on_idle and pool.on_idle()
        clock = LoopClock(asyncio.get_running_loop())
        self.scheduler = DefaultScheduler("m", pool, clock)
        self.requests: list[InferenceRequest] = []

    def send(self, wanted_s: float) -> asyncio.Future[InferenceResponse]:
        answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
        made = request(np.array([wanted_s], np.float32))
        made.deliver = lambda _, response: answer.set_result(response)
        self.requests.append(made)
        self.scheduler.enqueue(made)
        return answer

    @property
    def is_ahead(self) -> bool:
        return len(self.host._executions.bursts) == 2


@asynccontextmanager
async def asking(tmp_path: Path, source: str = SLEEPS, **limits: float) -> AsyncIterator[Asking]:
    """It is known how long the model takes."""
    restart = RestartPolicy(initial_delay_s=0.01)
    all_limits = ProcessLimits(initialize_s=20.0, restart=restart, **limits)
    async with hosted(context_for(tmp_path, source), limits=all_limits) as host:
        made = Asking(host)
        while not host._executions.limit.goes_ahead:  # a busy machine sleeps longer
            await made.send(BRIEF_S)
        yield made


def test_runs_neither_very_short_nor_long_have_the_next_waiting_behind_them():
    for run_ns, expected in [(BURST_NS // 4, False), (BURST_NS, True), (AHEAD_NS, False)]:
        limit = BurstLimit()
        assert not limit.goes_ahead  # nothing is known
        limit.record(run_ns)
        assert limit.goes_ahead is expected


async def test_times_of_what_waited_begin_where_the_run_before_it_ended(tmp_path: Path):
    """Neither statistics nor traces count the wait as computing."""
    async with asking(tmp_path) as model:
        answers = [model.send(BRIEF_S) for _ in range(6)]
        assert model.is_ahead
        for answer in answers:
            output(await answer)

        times = [item.times for item in model.requests[-6:]]
    for before, after in zip(times, times[1:], strict=False):
        assert after.compute_start_ns >= before.compute_output_start_ns
        assert after.compute_start_ns < after.compute_end_ns
    assert model.scheduler.inflight_count == 0


async def test_only_what_had_begun_fails_when_the_process_dies(tmp_path: Path):
    async with asking(tmp_path) as model:
        first = output(await model.send(BRIEF_S)).item()
        dying, waiting, queued = model.send(-0.05), model.send(BRIEF_S), model.send(BRIEF_S)
        assert model.is_ahead

        error = (await dying).error
        others = [output(await answer).item() for answer in (waiting, queued)]

    assert error is not None
    assert "exited with code 3" in error.message
    assert others[0] == others[1] != first


async def test_what_has_begun_behind_another_fails_with_the_process(tmp_path: Path):
    async with asking(tmp_path) as model:
        good, dying = model.send(BRIEF_S), model.send(-0.05)
        assert model.is_ahead

        output(await good)
        error = (await dying).error

    assert error is not None
    assert "exited with code 3" in error.message


async def test_the_time_limit_counts_from_when_an_execution_begins(tmp_path: Path):
    async with asking(tmp_path, execute_s=0.5) as model:
        answers = [model.send(wanted) for wanted in (0.3, 0.3, 60.0, BRIEF_S)]

        results = [await answer for answer in answers]

    errors = [result.error.message if result.error else "ok" for result in results]
    assert errors[:2] + errors[3:] == ["ok", "ok", "ok"]
    assert "did not end within 0.5 s" in errors[2]


async def test_a_stop_waits_for_both(tmp_path: Path):
    async with asking(tmp_path) as model:
        answers = [model.send(0.05), model.send(BRIEF_S)]
        assert model.is_ahead

        await model.host.stop()

        assert all(answer.done() and answer.result().error is None for answer in answers)


async def test_who_waits_behind_a_long_run_can_be_cancelled_at_once(tmp_path: Path):
    async with asking(tmp_path) as model:
        running, waiting = model.send(0.3), model.send(BRIEF_S)
        assert model.is_ahead

        model.requests[-1].cancel()
        error = (await waiting).error
        assert not running.done()
        assert model.requests[-1].times.compute_start_ns == 0, "no trace says that it began"
        later = model.send(BRIEF_S)
        for answer in (running, later):
            output(await answer)

        assert error is not None
        assert "cancelled while it waited in the queue" in error.message
        assert (len(model.host._running), model.scheduler.inflight_count) == (0, 0)


async def test_who_was_cancelled_is_not_executed_after_the_death_of_the_process(tmp_path: Path):
    async with asking(tmp_path) as model:
        dying, waiting, queued = model.send(-0.05), model.send(60.0), model.send(BRIEF_S)
        assert model.is_ahead

        model.requests[-2].cancel()
        assert (await waiting).error is not None
        assert (await dying).error is not None
        output(await queued)

        assert model.scheduler.inflight_count == 0


async def test_the_model_hears_of_what_was_cancelled_before_it_began(tmp_path: Path):
    async with asking(tmp_path, LOOKS) as model:
        running, waiting = model.send(0.1), model.send(BRIEF_S)
        assert model.is_ahead

        model.requests[-1].cancel()
        await running
        last = await model.send(BRIEF_S)

        assert (await waiting).error is not None
        assert output(last).item() == 1


async def test_a_thread_takes_one_ahead_too_and_answers_in_order():
    pause = threading.Event()
    host = host_of(Scripted(lambda requests: pause.wait(BRIEF_S) or ok(requests[0])))
    await host.start()
    order: list[str] = []

    def execute(name: str) -> None:
        host.execute(Batch([InferenceRequest("m", id=name)], 1), lambda b: order.append(name))

    execute("first")
    assert not host.takes_ahead  # nothing is known yet
    while not host._burst.goes_ahead:  # a busy machine waits longer
        await wait_until(lambda: not host._works)
        execute("another")
    await wait_until(lambda: not host._works)
    order.clear()
    execute("a")
    assert host.takes_ahead
    execute("b")
    assert not host.takes_ahead
    await host.stop()

    assert order == ["a", "b"]


async def test_who_waits_behind_a_thread_that_hangs_can_be_cancelled_at_once():
    hangs = threading.Event()

    def behave(requests: list[InferenceRequest]) -> None:
        if requests[0].id == "b":
            hangs.wait(30)
        else:
            threading.Event().wait(BRIEF_S)
        ok(requests[0])

    host = host_of(Scripted(behave))
    await host.start()
    answers: list[tuple[str, str]] = []
    made = []
    for name in "abc":
        item = InferenceRequest("m", id=name)
        item.deliver = lambda r, got: answers.append((r.id, got.error.message if got.error else ""))
        made.append(item)
        host.execute(Batch([item], 1), lambda batch: None)
        if name == "a":
            await wait_until(lambda: bool(answers))

    made[2].cancel()
    assert answers[1:] == [
        ("c", "the request to model 'm' was cancelled while it waited in the queue")
    ]
    hangs.set()
    await host.stop()
    assert [name for name, _ in answers] == ["a", "c", "b"]


async def test_what_waited_behind_the_loss_of_a_thread_is_not_executed():
    pause, executed = threading.Event(), []

    def behave(requests: list[InferenceRequest]) -> None:
        executed.append(requests[0].id)
        pause.wait(BRIEF_S)
        if requests[0].id == "b":
            raise InstanceLostError("the device is gone")
        ok(requests[0])

    host = host_of(Scripted(behave))
    await host.start()
    answers: dict[str, str] = {}
    for name in "abc":
        item = InferenceRequest("m", id=name)
        item.deliver = lambda r, got: answers.update({r.id: got.error.message if got.error else ""})
        host.execute(Batch([item], 1), lambda batch: None)
        if name == "a":
            await wait_until(lambda: "a" in answers)
    await wait_until(lambda: len(answers) == 3)
    await host.stop()

    assert executed == ["a", "b"]
    assert "the device is gone" in answers["b"]
    assert "the device is gone" in answers["c"]
