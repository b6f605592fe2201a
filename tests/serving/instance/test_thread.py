"""Instances in threads: answers, failures, creation and close."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from serving.backends.base import ExecutionTimes, LoadedModel, ModelInstance, Placement
from serving.config.decode import InstanceKind
from serving.errors import BackendError, InvalidArgumentError, ServingError
from serving.instance.base import Batch
from serving.instance.pool import InstancePool
from serving.instance.thread import ThreadHost
from serving.request import InferenceRequest
from serving.response import InferenceResponse

Behaviour = Callable[[Sequence[InferenceRequest]], None]


def ok(request: InferenceRequest) -> None:
    request.respond(InferenceResponse("m", 1, request.id))


class Scripted(LoadedModel, ModelInstance):
    """Does what the test says, and remembers in which threads."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.threads: list[str] = []

    def create_instance(self, placement: Placement) -> ModelInstance:
        self.threads.append(threading.current_thread().name)
        return self

    def execute(self, requests: Sequence[InferenceRequest], times: ExecutionTimes) -> None:
        self.threads.append(threading.current_thread().name)
        self.behaviour(requests)

    def close(self) -> None:
        self.threads.append(threading.current_thread().name)


def host_of(loaded: LoadedModel, **options: bool) -> ThreadHost:
    placement = Placement("m_0_0", InstanceKind.CPU)
    loop = asyncio.get_running_loop()
    return ThreadHost(loaded, placement, loop, model_name="m", **options)


async def run(behaviour: Behaviour, *ids: str, **options: bool) -> dict[str, str]:
    """Final answers of one batch: id -> "ok" or the error's text."""
    host = host_of(Scripted(behaviour), **options)
    await host.start()
    answers: list[tuple[str, str]] = []

    def deliver(request: InferenceRequest, response: InferenceResponse) -> None:
        if response.is_final:
            answers.append((request.id, response.error.message if response.error else "ok"))

    requests = [InferenceRequest("m", 1, name, deliver=deliver) for name in ids]
    done = asyncio.get_running_loop().create_future()
    host.execute(Batch(requests, len(requests)), done.set_result)
    await asyncio.wait_for(done, 5)
    await host.stop()
    assert len(dict(answers)) == len(answers), "one final answer each"
    return dict(answers)


async def test_every_request_of_a_batch_gets_its_answer():
    def behaviour(requests):
        for request in requests:
            ok(request)

    assert await run(behaviour, "a", "b") == {"a": "ok", "b": "ok"}


async def test_an_exception_fails_the_requests_without_an_answer_and_no_other(caplog):
    def behaviour(requests):
        ok(requests[0])
        raise ValueError("out of cheese")

    answers = await run(behaviour, "a", "b")

    assert answers == {"a": "ok", "b": "model 'm' failed to execute: out of cheese"}


async def test_a_model_that_exits_fails_its_requests_and_the_instance_lives_on(caplog):
    def behaviour(requests):
        raise SystemExit(3)

    assert await run(behaviour, "a") == {"a": "model 'm' failed to execute: 3"}


async def test_a_serving_error_is_passed_on_as_it_is():
    def behaviour(requests):
        raise InvalidArgumentError("no such thing")

    assert await run(behaviour, "a") == {"a": "no such thing"}


async def test_a_request_that_the_model_forgets_is_answered_with_an_error():
    answers = await run(lambda requests: ok(requests[0]), "a", "b")

    assert answers["a"] == "ok"
    assert "expected a single response" in answers["b"]


async def test_a_second_answer_is_dropped(caplog):
    def behaviour(requests):
        ok(requests[0])
        ok(requests[0])

    assert await run(behaviour, "a", "b") == {
        "a": "ok",
        "b": "model 'm' gave no final response: expected a single response for each request",
    }
    assert "dropped a response after the final one" in caplog.text


async def test_an_instance_is_created_used_and_closed_in_its_own_thread():
    loaded = Scripted(lambda requests: ok(requests[0]))
    host = host_of(loaded)
    assert not host.is_ready
    await host.start()
    done = asyncio.get_running_loop().create_future()
    host.execute(Batch([InferenceRequest("m")], 1), done.set_result)
    batch = await done

    await host.stop()

    assert loaded.threads == ["m_0_0"] * 3
    assert batch.times.compute_end_ns >= batch.times.compute_start_ns > 0
    assert batch.requests[0].times.compute_output_start_ns == batch.times.compute_end_ns
    assert repr(host) == "<ThreadHost m_0_0 stopped>"


async def test_a_model_may_answer_from_a_thread_of_its_own():
    started: list[threading.Thread] = []

    def behaviour(requests):
        thread = threading.Thread(target=ok, args=(requests[0],))
        thread.start()
        thread.join()
        started.append(thread)

    host = host_of(Scripted(behaviour), is_decoupled=True)
    await host.start()
    answered = asyncio.get_running_loop().create_future()
    request = InferenceRequest("m", deliver=lambda _, response: answered.set_result(response))
    host.execute(Batch([request], 1), lambda _: None)

    assert (await asyncio.wait_for(answered, 5)).is_final
    await host.stop()


async def test_a_creation_that_fails_is_a_serving_error_with_the_cause():
    class Broken(Scripted):
        def create_instance(self, placement: Placement) -> ModelInstance:
            raise OSError("no memory")

    pool = InstancePool([host_of(Broken(ok))])

    with pytest.raises(BackendError, match="instance 'm_0_0' could not be created: no memory"):
        await pool.start()


async def test_a_creation_that_exits_does_not_leave_the_load_waiting():
    class Exiting(Scripted):
        def create_instance(self, placement: Placement) -> ModelInstance:
            raise SystemExit(3)

    with pytest.raises(BackendError, match="could not be created"):
        await asyncio.wait_for(InstancePool([host_of(Exiting(ok))]).start(), 5)


@pytest.mark.parametrize("is_scheduler_broken", [True, False])
async def test_trouble_of_one_caller_or_of_the_scheduler_costs_no_other_answer(
    caplog, is_scheduler_broken: bool
):
    def broken(*_: object) -> None:
        raise RuntimeError("trouble")

    host = host_of(Scripted(lambda requests: [ok(item) for item in requests] and None))
    await host.start()
    answered = asyncio.get_running_loop().create_future()
    second = InferenceRequest("m", deliver=lambda _, response: answered.set_result(response))
    batch = Batch([InferenceRequest("m", deliver=broken), second], 2)
    host.execute(batch, broken if is_scheduler_broken else lambda _: None)

    assert (await asyncio.wait_for(answered, 5)).error is None
    assert "delivering a response failed" in caplog.text
    assert ("handing out the next batch failed" in caplog.text) is is_scheduler_broken
    await host.stop()


async def test_a_pool_with_one_broken_instance_stops_the_others():
    class Broken(Scripted):
        def create_instance(self, placement: Placement) -> ModelInstance:
            raise InvalidArgumentError("bad device")

    good = Scripted(ok)
    pool = InstancePool([host_of(good), host_of(Broken(ok))])

    with pytest.raises(ServingError, match="bad device"):
        await pool.start()

    assert good.threads == ["m_0_0"] * 2
    assert "is not running" in pool.unready_reason


async def test_a_burst_runs_one_after_the_other_and_tells_of_each():
    host = host_of(Scripted(lambda requests: ok(requests[0])))
    await host.start()
    order: list[str] = []
    finished = asyncio.get_running_loop().create_future()

    def done(batch: Batch) -> None:
        order.append(batch.requests[0].id)
        if len(order) == 3:
            finished.set_result(None)

    requests = [InferenceRequest("m", id=name) for name in "abc"]
    host.execute_burst([Batch([request], 1) for request in requests], done)
    await asyncio.wait_for(finished, 5)
    await host.stop()

    assert order == ["a", "b", "c"]


async def test_only_fast_models_get_bursts():
    pause = threading.Event()
    host = host_of(Scripted(lambda requests: pause.wait(0.002) or ok(requests[0])))
    await host.start()
    assert host.burst_limit == 1

    done = asyncio.get_running_loop().create_future()
    host.execute(Batch([InferenceRequest("m")], 1), done.set_result)
    await done

    assert host.burst_limit == 1
    await host.stop()
