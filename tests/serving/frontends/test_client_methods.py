"""Every public method of the four unmodified client classes, against one running server.

The methods are found by looking at the classes: one that a newer client adds, and no walk below
calls, fails the test. TOOL-001 to TOOL-004, TOOL-006; every HTTP- and GRPC- route of section B.
"""

from __future__ import annotations

import base64
import inspect
import json
import queue
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException

from tests import fake_cuda
from tests.serving.frontends.process import ServerProcess

KINDS = {
    "http": tritonclient.http,
    "http.aio": tritonclient.http.aio,
    "grpc": tritonclient.grpc,
    "grpc.aio": tritonclient.grpc.aio,
}
X = np.arange(8, dtype=np.float32).reshape(2, 4)


class Caller:
    """One client; remembers which of its methods were called."""

    def __init__(self, kind: str, server: ServerProcess) -> None:
        self.is_http = kind.startswith("http")
        self.is_aio = kind.endswith("aio")
        self.client = KINDS[kind].InferenceServerClient(
            server.http if self.is_http else server.grpc
        )
        self.tools = tritonclient.http if self.is_http else tritonclient.grpc
        self.called: set[str] = set()

    async def __call__(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.called.add(name)
        result = getattr(self.client, name)(*arguments, **options)
        return await result if inspect.isawaitable(result) else result

    async def read(self, name: str, *arguments: Any) -> Any:
        """The answer as JSON has it."""
        options = {} if self.is_http else {"as_json": True}
        return await self(name, *arguments, **options)

    def tensor(self, array: Any = X, name: str = "INPUT0") -> Any:
        item = self.tools.InferInput(name, list(array.shape), "FP32")
        item.set_data_from_numpy(array)
        return item


def public_methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


@pytest.fixture(params=KINDS)
async def caller(request: pytest.FixtureRequest, open_server: ServerProcess) -> AsyncIterator[Any]:
    caller = Caller(request.param, open_server)
    yield caller
    await caller("close")


@pytest.fixture
def memory() -> Iterator[Path]:
    with fake_cuda.allocation(X.tobytes() + bytes(64)) as file:
        yield file


async def test_every_public_method_of_the_clients_works(caller: Caller, memory: Path) -> None:
    await read_about_server_and_models(caller)
    await change_settings(caller)
    await unload_and_load(caller)
    await use_shared_memory(caller, memory)
    await use_plugins(caller)
    await infer_in_every_way(caller)

    caller.called.add("close")  # by the fixture, which needs it as well
    assert caller.called == public_methods(type(caller.client))


async def read_about_server_and_models(call: Caller) -> None:
    assert await call("is_server_live")
    assert await call("is_server_ready")
    assert await call("is_model_ready", "identity", "1")
    assert (await call.read("get_server_metadata"))["name"] == "triton"
    assert (await call.read("get_model_metadata", "identity"))["versions"] == ["1"]
    config = await call.read("get_model_config", "identity")
    assert config.get("config", config)["backend"] == "identity"
    index = await call.read("get_model_repository_index")
    rows = index if isinstance(index, list) else index["models"]
    assert {"identity", "strings"} <= {row["name"] for row in rows}
    stats = await call.read("get_inference_statistics", "identity", "1")
    assert stats["model_stats"][0]["name"] == "identity"


async def change_settings(call: Caller) -> None:
    before = await call.read("get_trace_settings", "identity")
    changed = await call.read("update_trace_settings", "identity", {"trace_rate": "7"})
    cleared = await call.read("update_trace_settings", "identity", {"trace_rate": None})
    assert rate_of(changed) == "7"
    assert rate_of(cleared) == rate_of(before)
    assert "log_info" in str(await call.read("get_log_settings"))
    assert "ISO8601" in str(await call.read("update_log_settings", {"log_format": "ISO8601"}))
    assert "default" in str(await call.read("update_log_settings", {"log_format": "default"}))


def rate_of(settings: Any) -> str:
    found = settings.get("settings", settings)["trace_rate"]
    return str(found["value"][0] if isinstance(found, dict) else found)


async def unload_and_load(call: Caller) -> None:
    await call("unload_model", "half")
    while await state_of(call, "half") == "UNLOADING":
        pass
    assert await state_of(call, "half") == "UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="half"):
        await call.read("get_model_metadata", "half")
    config = await call.read("get_model_config", "strings")
    other = json.dumps(config.get("config", config) | {"name": "half"})
    await call("load_model", "half", config=other)
    assert "BYTES" in str(await call.read("get_model_metadata", "half"))
    await call("load_model", "half")
    assert "FP16" in str(await call.read("get_model_metadata", "half"))


async def state_of(call: Caller, model: str) -> str:
    index = await call.read("get_model_repository_index")
    rows = index if isinstance(index, list) else index["models"]
    return next(row["state"] for row in rows if row["name"] == model)


async def use_shared_memory(call: Caller, memory: Path) -> None:
    handle = base64.b64encode(fake_cuda.handle_of(memory))
    name = f"r{secrets.token_hex(4)}"
    for kind, register in (
        ("system", (f"{name}system", f"/{memory.name}", 96)),
        ("cuda", (f"{name}cuda", handle, 0, 96)),
    ):
        await call(f"register_{kind}_shared_memory", *register)
        status = await call.read(f"get_{kind}_shared_memory_status", register[0])
        assert register[0] in str(status)
        await infer_through(call, register[0], memory)
        await call(f"unregister_{kind}_shared_memory", register[0])
        assert register[0] not in str(await call.read(f"get_{kind}_shared_memory_status"))


async def infer_through(call: Caller, region: str, memory: Path) -> None:
    tensor = call.tools.InferInput("INPUT0", [2, 4], "FP32")
    tensor.set_shared_memory(region, 32)
    output = call.tools.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory(region, 64, 32)
    await call("infer", "identity", [tensor], outputs=[output])
    assert memory.read_bytes()[32:64] == X.tobytes()


async def use_plugins(call: Caller) -> None:
    plugin = BasicAuth("user", "password")
    await call("register_plugin", plugin)
    assert await call("plugin") is plugin
    assert await call("is_server_live")
    await call("unregister_plugin")
    assert await call("plugin") is None


async def infer_in_every_way(call: Caller) -> None:
    result = await call(
        "infer",
        "identity",
        [call.tensor()],
        request_id="r7",
        outputs=[call.tools.InferRequestedOutput("OUTPUT0")],
        priority=0,
        timeout=10_000_000,
        headers={"x-some": "header"},
        parameters={"some": "parameter", "number": 7, "flag": True},
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X)
    answer = result.get_response()
    assert (answer["id"] if call.is_http else answer.id) == "r7"
    if call.is_http:
        await infer_by_body(call)
    elif call.is_aio:
        await infer_by_aio_stream(call)
    else:
        await infer_by_stream(call)
    if not call.is_aio:
        await infer_async(call)


async def infer_by_body(call: Caller) -> None:
    """The bytes that the client makes and reads, without its own connection."""
    body, length = await call("generate_request_body", [call.tensor()])
    assert length == len(body) - X.nbytes
    answer = (
        b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[1],"data":[7]}]}'
    )
    result = await call("parse_response_body", answer)
    assert result.as_numpy("y").tolist() == [7]


async def infer_async(call: Caller) -> None:
    if call.is_http:
        result = (await call("async_infer", "identity", [call.tensor()])).get_result()
    else:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        await call(
            "async_infer",
            "identity",
            [call.tensor()],
            callback=lambda result, error: answers.put(error or result),
        )
        result = answers.get(timeout=10)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X)


async def infer_by_stream(call: Caller) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    await call("start_stream", lambda result, error: answers.put(error or result))
    for number in range(3):
        await call("async_stream_infer", "identity", [call.tensor()], request_id=str(number))
    ids = [answers.get(timeout=10).get_response().id for _ in range(3)]
    await call("stop_stream")
    assert ids == ["0", "1", "2"]


async def infer_by_aio_stream(call: Caller) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            yield {
                "model_name": "identity",
                "inputs": [call.tensor()],
                "request_id": str(number),
            }

    call.called.add("stream_infer")
    got = [item async for item in call.client.stream_infer(requests())]
    assert [error for _, error in got] == [None] * 3
    assert [result.get_response().id for result, _ in got] == ["0", "1", "2"]
