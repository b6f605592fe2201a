"""Calls that get no answer: circles of models, callers that leave or die (PB-041, PB-045)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.errors import ServingError
from tests.serving.backends.python.serving_models import (
    ADD_ONE,
    FP32,
    ask_server,
    infer_request,
    served,
    source_of,
)
from tests.waiting import wait_until

ADD = source_of(ADD_ONE)
RESOURCE = """
instance_group [{ kind: KIND_CPU rate_limiter { resources [{ name: "r" global: true count: 1 }] } }]
"""
ENSEMBLE = f"""
name: "e" platform: "ensemble" {FP32}
ensemble_scheduling {{
  step {{
    model_name: "add" model_version: -1
    input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "t" }}
  }}
  step {{
    model_name: "a" model_version: -1
    input_map {{ key: "IN" value: "t" }} output_map {{ key: "OUT" value: "OUT" }}
  }}
}}
"""
TWO = "instance_group [{ kind: KIND_CPU count: 2 }]"


async def test_pb_045_a_model_may_call_itself_while_an_instance_is_free(tmp_path: Path):
    body = """
depth = value_in(requests[0])[0]
if depth == 0:
    return [array_ok(np.zeros(1, np.float32))]
return [array_ok(value_of(call("m", depth - 1).exec()) + 1)]
"""
    config = "instance_group [{ kind: KIND_CPU count: 3 }]"
    async with served(tmp_path, {"m": (source_of(body), config)}) as server:
        assert await ask_server(server, "m", 2.0) == [2.0]
        with pytest.raises(ServingError, match="which could never answer"):
            await asyncio.wait_for(ask_server(server, "m", 3.0), 10)
        assert await ask_server(server, "m", 1.0) == [1.0], "it goes on afterwards"


async def test_pb_045_a_circle_of_models_is_refused_instead_of_waiting_for_ever(tmp_path: Path):
    body = "return [array_ok(value_of(call('{}', value_in(r)).exec())) for r in requests]"
    models = {"a": source_of(body.format("b")), "b": source_of(body.format("a"))}
    async with served(tmp_path, models) as server:
        with pytest.raises(ServingError, match="every instance of 'a' is busy"):
            await asyncio.wait_for(ask_server(server, "a"), 10)


async def test_pb_045_a_refused_call_of_the_caller_itself_is_not_executed(tmp_path: Path):
    """Not even where the next request may wait at the instance, behind the caller."""
    body = """
import time
pb_utils.count = getattr(pb_utils, "count", 0) + 1
time.sleep(0.002)
if value_in(requests[0])[0] == 1:
    value_of(call("m", 0.0).exec())
return [array_ok(np.array([pb_utils.count], np.float32))]
"""
    async with served(tmp_path, {"m": source_of(body)}) as server:
        for count in (1, 2):
            assert await ask_server(server, "m", 0.0) == [count]
        with pytest.raises(ServingError, match="which could never answer"):
            await asyncio.wait_for(ask_server(server, "m", 1.0), 10)

        assert await ask_server(server, "m", 0.0) == [4]


async def test_pb_045_a_circle_through_an_ensemble_is_refused_as_well(tmp_path: Path):
    body = "return [array_ok(value_of(call('{}', value_in(r)).exec())) for r in requests]"
    (tmp_path / "e/1").mkdir(parents=True)
    (tmp_path / "e/config.pbtxt").write_text(ENSEMBLE)
    models = {"add": ADD, "a": source_of(body.format("e")), "b": source_of(body.format("add"))}
    async with served(tmp_path, models) as server:
        with pytest.raises(ServingError, match="called model 'e'.* every instance of 'a' is busy"):
            await asyncio.wait_for(ask_server(server, "a"), 10)
        await server.unload_model("a")
        text = ENSEMBLE.replace('"a"', '"b"')
        (tmp_path / "e/config.pbtxt").write_text(text)
        await server.load_model("e")
        assert await ask_server(server, "e") == [3.0], "no circle, though both ask the same model"


async def test_pb_045_a_call_of_a_model_that_needs_the_callers_resources_is_refused(
    tmp_path: Path,
):
    body = "return [array_ok(value_of(call('b', value_in(r)).exec())) for r in requests]"
    models = {"a": (source_of(body), RESOURCE), "b": (ADD, RESOURCE)}
    async with served(tmp_path, models, rate_limit=True) as server:
        with pytest.raises(ServingError, match="every instance of 'b' .* waits for resources"):
            await asyncio.wait_for(ask_server(server, "a"), 10)
        assert await ask_server(server, "b") == [2.0]

    two = {("r", None): 2}
    async with served(tmp_path, models, rate_limit=True, rate_limit_resources=two) as server:
        assert await ask_server(server, "a") == [2.0]


async def test_pb_045_two_callers_that_hold_all_instances_are_not_both_stuck(tmp_path: Path):
    body = """
import time
if value_in(requests[0])[0] == 0:
    return [ok()]
time.sleep(0.5)
return [array_ok(value_of(call("m", 0.0).exec()))]
"""
    async with served(tmp_path, {"m": (source_of(body), TWO)}) as server:
        asked = [ask_server(server, "m", 1.0) for _ in range(2)]
        results = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)

    failed = [item for item in results if isinstance(item, ServingError)]
    assert len(failed) == 1, results
    assert "which could never answer" in failed[0].message


@pytest.mark.parametrize("trace", ["", ", trace=requests[0].trace()"])
async def test_closing_the_caller_cancels_the_call(tmp_path: Path, trace: str):
    body = f"""
import threading
answers = []
def one():
    answers.append(call("waiting", 1.0{trace}).exec())
{"one()" if not trace else "t = threading.Thread(target=one); t.start(); t.join()"}
return [pb_utils.InferenceResponse(error=answers[0].error())]
"""
    waiting = """
import time
for _ in range(2000):
    if requests[0].is_cancelled():
        error = pb_utils.TritonError("given up", pb_utils.TritonError.CANCELLED)
        return [pb_utils.InferenceResponse(error=error)]
    time.sleep(0.005)
return [ok()]
"""
    async with served(tmp_path, {"waiting": source_of(waiting), "m": source_of(body)}) as server:
        got: list = []
        request = infer_request("m")
        request.on_response = got.append
        server.infer(request)
        await wait_until(lambda: server.model("waiting").inflight_count == 1)
        request.cancel()
        await wait_until(lambda: bool(got))

        assert got[0].error.message == "given up"
        assert server.model("waiting").inflight_count == 0


async def test_a_caller_that_dies_takes_its_calls_with_it(tmp_path: Path):
    body = """
import os, threading, time
if value_in(requests[0])[0] == 0:
    os._exit(3)
threading.Timer(0.3, os._exit, (3,)).start()
call("waiting").exec()
"""
    waiting = """
import time
while not requests[0].is_cancelled():
    time.sleep(0.01)
return [ok()]
"""
    async with served(tmp_path, {"waiting": source_of(waiting), "m": source_of(body)}) as server:
        with pytest.raises(ServingError, match="exited with code 3"):
            await ask_server(server, "m")
        await wait_until(lambda: server.model("waiting").inflight_count == 0)


async def test_a_called_model_that_dies_is_an_error_in_the_response(tmp_path: Path):
    body = "return [pb_utils.InferenceResponse(error=call('dies').exec().error())]"
    dies = "import os\nos._exit(7)"
    async with served(tmp_path, {"dies": source_of(dies), "m": source_of(body)}) as server:
        with pytest.raises(ServingError, match="exited with code 7"):
            await ask_server(server, "m")


@pytest.mark.parametrize(
    ("hook", "body"),
    [
        ("initialize(self, args)", "call('add').exec()"),
        ("initialize(self, args)", "call('add').async_exec()"),
    ],
)
async def test_pb_041_a_call_outside_of_execute_says_where_it_is_allowed(
    tmp_path: Path, hook: str, body: str
):
    extra = f"    def {hook}:\n        {body}"
    if "async" in body:
        extra = (
            "    def initialize(self, args):\n        import asyncio\n"
            f"        async def go():\n            {body}\n        asyncio.run(go())"
        )
    with pytest.raises(ServingError, match="only during the 'execute' function"):
        async with served(tmp_path, {"add": ADD, "m": source_of("return []", extra)}):
            pass


async def test_accepted_requests_may_call_other_models_while_the_server_stops(tmp_path: Path):
    body = """
import time
time.sleep(0.5)
return [array_ok(value_of(call("add", value_in(r)).exec())) for r in requests]
"""
    async with served(tmp_path, {"add": ADD, "m": source_of(body)}) as server:
        asked = asyncio.create_task(ask_server(server, "m", 2.0))
        await wait_until(lambda: server.model("m").inflight_count == 1)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)

        with pytest.raises(ServingError, match="Server is stopping"):
            await ask_server(server, "add")
        assert await asked == [3.0]
        assert await stopping
