"""Models that call other models (BLS), each in a process of its own (PB-040 to PB-045, PB-047)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ErrorCode, ServingError
from tests.serving.backends.python.serving_models import (
    ADD_ONE,
    DECOUPLED_POLICY,
    ask_server,
    infer_request,
    output_of,
    served,
    source_of,
)
from tests.waiting import wait_until

ADD = source_of(ADD_ONE)
TWICE = "return [array_ok(value_of(call('add', value_in(r)).exec()) * 2) for r in requests]"
COUNT = """
for r in requests:
    sender = r.get_response_sender()
    for index in range(int(value_in(r)[0])):
        sender.send(ok(float(index)))
    sender.send(flags=FINAL)
"""
SUMS = """
self.sums = getattr(self, "sums", {})
answers = []
for r in requests:
    key = r.correlation_id()
    started = pb_utils.get_input_tensor_by_name(r, "START").as_numpy().reshape(-1)[0]
    self.sums[key] = (0.0 if started else self.sums[key]) + value_in(r).reshape(-1)[0]
    answers.append(array_ok(np.array([[self.sums[key]]], np.float32)))
return answers
"""
SEQUENCES = """
max_batch_size: 1
sequence_batching { max_sequence_idle_microseconds: 60000000
    control_input [{ name: "START"
        control [{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }] }] }
"""
WAITING = "import time\ntime.sleep(60)\nreturn [ok()]"


async def test_pb_041_exec_waits_for_the_other_model_and_gives_its_response(tmp_path: Path):
    async with served(tmp_path, {"add": ADD, "twice": source_of(TWICE)}) as server:
        assert await ask_server(server, "twice", 3.0) == [8.0]
        assert server.model("add").stats.snapshot().success.count == 1


@pytest.mark.parametrize("size", [0, 16, 150_528])
async def test_tensors_of_any_size_cross_both_ways_unchanged(tmp_path: Path, size: int):
    sent = np.arange(size, dtype=np.float32)

    async with served(tmp_path, {"add": ADD, "twice": source_of(TWICE)}) as server:
        for _ in range(3):
            np.testing.assert_array_equal(await ask_server(server, "twice", sent), (sent + 1) * 2)


async def test_pb_042_async_exec_gathers_many_calls_of_one_execution(tmp_path: Path):
    slow = "import time\ntime.sleep(0.3)\nreturn [array_ok(value_in(r) + 1) for r in requests]"
    body = """
async def one(r):
    calls = [call("add", value_in(r) + n).async_exec() for n in range(3)]
    return [value_of(item)[0] for item in await asyncio.gather(*calls)]
return [array_ok(np.array(await one(r), np.float32)) for r in requests]
"""
    source = source_of(body).replace("def execute", "async def execute") + "\nimport asyncio\n"
    config = "instance_group [{ kind: KIND_CPU count: 3 }]"

    async with served(tmp_path, {"add": (source_of(slow), config), "all": source}) as server:
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert (await ask_server(server, "all", 1.0)).tolist() == [2.0, 3.0, 4.0]
        assert loop.time() - start < 0.85, "the calls ran one after the other"


async def test_pb_043_responses_of_a_decoupled_model_are_iterated_and_the_last_is_empty(
    tmp_path: Path,
):
    body = """
values = [
    [float(t.as_numpy()[0]) for t in item.output_tensors()]
    for item in call("count", value_in(requests[0])).exec(decoupled=True)
]
assert values[-1] == [], values
return [array_ok(np.array(sum(values, []), np.float32))]
"""
    models = {"count": (source_of(COUNT), DECOUPLED_POLICY), "sum": source_of(body)}
    async with served(tmp_path, models) as server:
        assert (await ask_server(server, "sum", 3.0)).tolist() == [0.0, 1.0, 2.0]
        assert (await ask_server(server, "sum", 0.0)).tolist() == []


async def test_an_iterator_of_a_decoupled_call_can_be_awaited_item_by_item(tmp_path: Path):
    body = """
found = []
async for item in await call("count", 3.0).async_exec(decoupled=True):
    found += [t.as_numpy()[0] for t in item.output_tensors()]
for item in await call("count", 2.0).async_exec(decoupled=True):
    found += [t.as_numpy()[0] for t in item.output_tensors()]
return [array_ok(np.array(found, np.float32))]
"""
    source = source_of(body).replace("def execute", "async def execute")
    models = {"count": (source_of(COUNT), DECOUPLED_POLICY), "sum": source}
    async with served(tmp_path, models) as server:
        assert (await ask_server(server, "sum")).tolist() == [0.0, 1.0, 2.0, 0.0, 1.0]


async def test_a_model_with_one_response_can_be_iterated_as_well(tmp_path: Path):
    body = "return [array_ok(value_of(item)) for item in call('add').exec(decoupled=True)]"
    async with served(tmp_path, {"add": ADD, "m": source_of(body)}) as server:
        assert await ask_server(server, "m") == [2.0]


async def test_pb_043_a_cancelled_iterator_tells_the_called_model(tmp_path: Path):
    endless = """
import time
sender = requests[0].get_response_sender()
while not sender.is_cancelled():
    sender.send(ok())
    time.sleep(0.01)
sender.send(ok(-1.0), flags=FINAL)
"""
    body = """
responses = call("endless").exec(decoupled=True)
seen = 0
for item in responses:
    seen += 1
    if seen == 3:
        responses.cancel()
return [ok(float(seen >= 3))]
"""
    models = {"endless": (source_of(endless), DECOUPLED_POLICY), "m": source_of(body)}
    async with served(tmp_path, models) as server:
        assert await asyncio.wait_for(ask_server(server, "m"), 10) == [1.0]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("call('nope')", "Model nope - Error when running inference: "),
        ("call('add', model_version=7)", "version 7"),
        ("call('add', outputs=['X'])", "unexpected inference output 'X' for model 'add'"),
        ("call('add', np.zeros((2, 2), np.float32))", "unexpected shape for input 'IN'"),
        ("call('add', np.zeros(2, np.int32))", "data-type is 'INT32'"),
        ("call('count')", "decoupled=True"),
    ],
)
async def test_pb_041_what_is_wrong_with_a_call_comes_as_a_response_with_an_error(
    tmp_path: Path, made: str, told: str
):
    body = f"""
response = {made}.exec()
assert response.has_error() and response.output_tensors() == []
return [pb_utils.InferenceResponse(error=response.error())]
"""
    models = {"add": ADD, "count": (source_of(COUNT), DECOUPLED_POLICY), "m": source_of(body)}
    async with served(tmp_path, models) as server:
        with pytest.raises(ServingError) as caught:
            await ask_server(server, "m")

    assert told in caught.value.message
    assert caught.value.code is ErrorCode.INTERNAL, "no client can mend it"


async def test_an_error_of_the_called_model_keeps_its_code(tmp_path: Path):
    failing = """
error = pb_utils.TritonError("none left", pb_utils.TritonError.NOT_FOUND)
return [pb_utils.InferenceResponse(error=error)]
"""
    body = "return [pb_utils.InferenceResponse(error=call('failing').exec().error())]"
    async with served(tmp_path, {"failing": source_of(failing), "m": source_of(body)}) as server:
        with pytest.raises(ServingError, match="^none left$") as caught:
            await ask_server(server, "m")

    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_pb_040_a_call_carries_id_correlation_flags_timeout_and_parameters(tmp_path: Path):
    echo = """
import json
r = requests[0]
told = json.dumps([r.request_id(), r.correlation_id(), r.flags(), r.timeout(),
                   json.loads(r.parameters()), sorted(r.requested_output_names())])
return [pb_utils.InferenceResponse(error=pb_utils.TritonError(told))]
"""
    body = """
made = call("echo", request_id="id", correlation_id="c", flags=3, timeout=9000000,
            parameters={"a": 1, "b": "x", "c": True, "d": 1.5}, model_version=1,
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
            trace=requests[0].trace())
return [pb_utils.InferenceResponse(error=made.exec().error())]
"""
    async with served(tmp_path, {"echo": source_of(echo), "m": source_of(body)}) as server:
        with pytest.raises(ServingError) as caught:
            await ask_server(server, "m")

    expected = '["id", "c", 3, 9000000, {"a": 1, "b": "x", "c": true, "d": 1.5}, ["OUT"]]'
    assert caught.value.message == expected


async def test_no_requested_outputs_stands_for_all_of_them(tmp_path: Path):
    body = "return [array_ok(value_of(call('add', outputs=[]).exec()))]"
    async with served(tmp_path, {"add": ADD, "m": source_of(body)}) as server:
        assert await ask_server(server, "m") == [2.0]


async def test_pb_044_a_call_whose_time_in_the_queue_is_over_gets_an_error(tmp_path: Path):
    body = """
import threading, time
threading.Thread(target=lambda: call("slow", np.ones((1, 1), np.float32)).exec()).start()
time.sleep(0.3)
late = call("slow", np.zeros((1, 1), np.float32), timeout=1000).exec()
return [pb_utils.InferenceResponse(error=late.error())]
"""
    slow = "import time\ntime.sleep(float(value_in(requests[0])[0, 0]))\nreturn [ok()]"
    policy = (
        "max_batch_size: 1 dynamic_batching { default_queue_policy { "
        "allow_timeout_override: true default_timeout_microseconds: 9000000 } }"
    )
    async with served(
        tmp_path, {"slow": (source_of(slow), policy), "m": source_of(body)}
    ) as server:
        with pytest.raises(ServingError) as caught:
            await ask_server(server, "m")

    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert "timeout" in caught.value.message.lower()


async def test_calls_may_come_from_any_thread_while_and_after_execute(tmp_path: Path):
    body = """
import threading
values = []
def one(n):
    values.append(value_of(call("add", float(n)).exec())[0])
threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
for item in threads: item.start()
for item in threads: item.join()
sender = requests[0].get_response_sender()
def later():
    last = value_of(call("add", 9.0).exec())[0]
    sender.send(array_ok(np.array([*sorted(values), last], np.float32)))
    sender.send(flags=FINAL)
threading.Thread(target=later).start()
"""
    models = {"add": ADD, "m": (source_of(body), DECOUPLED_POLICY)}
    async with served(tmp_path, models) as server:
        got: list = []
        request = infer_request("m")
        request.on_response = got.append
        server.infer(request)
        await wait_until(lambda: bool(got) and got[-1].is_final)

    assert got[0].error is None, got[0].error
    assert output_of(got[0]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0]


async def test_a_chain_of_three_models_answers(tmp_path: Path):
    middle = "return [array_ok(value_of(call('{}', value_in(r)).exec()) + 1) for r in requests]"
    models = {
        "last": ADD,
        "middle": source_of(middle.format("last")),
        "first": source_of(middle.format("middle")),
    }
    async with served(tmp_path, models) as server:
        answers = await asyncio.gather(*(ask_server(server, "first", float(n)) for n in range(20)))

    assert [float(item[0]) for item in answers] == [n + 3.0 for n in range(20)]


async def test_a_decoupled_model_with_coroutines_overlaps_its_requests_and_calls(tmp_path: Path):
    body = """
async def one(r):
    await asyncio.sleep(0.3)
    answer = await call("add", value_in(r)).async_exec()
    sender = r.get_response_sender()
    sender.send(array_ok(value_of(answer)))
    sender.send(flags=FINAL)
await asyncio.gather(*map(one, requests))
"""
    source = source_of(body).replace("def execute", "async def execute") + "\nimport asyncio\n"
    async with served(tmp_path, {"add": ADD, "m": (source, DECOUPLED_POLICY)}) as server:
        got: list = []
        for value in range(5):
            request = infer_request("m", float(value))
            request.on_response = got.append
            server.infer(request)
        start = asyncio.get_running_loop().time()
        await wait_until(lambda: sum(item.is_final for item in got) == 5)

        assert asyncio.get_running_loop().time() - start < 1.2, "they ran one after the other"
    values = sorted(float(output_of(item)[0]) for item in got if item.outputs)
    assert values == [1.0, 2.0, 3.0, 4.0, 5.0]


async def test_pb_047_calls_with_flags_and_a_correlation_id_are_a_sequence(tmp_path: Path):
    body = """
found = []
for value, flags in ((1.0, 1), (2.0, 0), (3.0, 2)):
    array = np.array([[value]], np.float32)
    found.append(value_of(call("sums", array, correlation_id=7, flags=flags).exec())[0, 0])
late = call("sums", np.ones((1, 1), np.float32), correlation_id=7).exec()
assert late.has_error() and "START" in late.error().message(), late.error()
return [array_ok(np.array(found, np.float32))]
"""
    models = {"sums": (source_of(SUMS), SEQUENCES), "m": source_of(body)}
    async with served(tmp_path, models) as server:
        assert (await ask_server(server, "m")).tolist() == [1.0, 3.0, 6.0]


async def test_pb_047_a_sequence_goes_on_where_it_began_when_its_model_is_replaced(tmp_path: Path):
    body = """
return [array_ok(value_of(call(
    "sums", np.ones((1, 1), np.float32), correlation_id=7, flags=int(value_in(r)[0])).exec())[0])
    for r in requests]
"""
    models = {"sums": (source_of(SUMS), SEQUENCES), "m": source_of(body)}
    async with served(tmp_path, models) as server:
        assert await ask_server(server, "m", 1.0) == [1.0]
        (tmp_path / "sums/1/model.py").write_text(source_of(SUMS) + "# another one\n")
        await server.load_model("sums")

        assert await ask_server(server, "m", 0.0) == [2.0]
        assert await ask_server(server, "m", 2.0) == [3.0]


async def test_calls_with_big_tensors_use_their_segments_again(tmp_path: Path):
    sent = np.zeros(50_000, np.float32)

    async with served(tmp_path, {"add": ADD, "twice": source_of(TWICE)}) as server:
        for _ in range(20):
            await ask_server(server, "twice", sent)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(60):
            await ask_server(server, "twice", sent)
        # Far below one for each call; some wait for the collector.
        assert len(os.listdir("/proc/self/fd")) <= before + 20
