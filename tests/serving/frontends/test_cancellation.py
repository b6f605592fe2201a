"""A caller that goes away, and limits of time, through HTTP and gRPC. Spec SCH-140..145."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
from tritonclient.utils import InferenceServerException

from tests.serving.frontends.process import ServerProcess
from tests.serving.frontends.raw_http import RawClient, message
from tests.waiting import wait_until

NOTICES = """
import os
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.seen = os.path.join(args["model_repository"], "seen")

    def note(self, word):
        with open(self.seen, "a") as file:
            file.write(word + "\\n")

    def execute(self, requests):
        self.note("executing")
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if all(request.is_cancelled() for request in requests):
                self.note("cancelled")
                error = pb_utils.TritonError("as asked", pb_utils.TritonError.CANCELLED)
                return [pb_utils.InferenceResponse(error=error) for _ in requests]
            time.sleep(0.005)
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("never")) for _ in requests]
"""
CONFIG = """
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
SLOW = """
backend: "identity" max_batch_size: 1
parameters { key: "execute_delay_ms" value { string_value: "300" } }
dynamic_batching {
  default_queue_policy { default_timeout_microseconds: 60000000 allow_timeout_override: true } }
instance_group { kind: KIND_CPU count: 1 }
"""
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    (root / "notices" / "1").mkdir(parents=True)
    (root / "notices" / "1" / "model.py").write_text(NOTICES)
    (root / "notices" / "config.pbtxt").write_text('backend: "python" max_batch_size: 1' + CONFIG)
    (root / "slow" / "1").mkdir(parents=True)
    (root / "slow" / "config.pbtxt").write_text(SLOW + CONFIG)
    return root


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[ServerProcess]:
    with ServerProcess((f"--model-repository={repository}",)) as server:
        yield server


def input_of(value: float = 1) -> Any:
    item = grpcclient.InferInput("IN", [1, 1], "FP32")
    item.set_data_from_numpy(np.array([[value]], np.float32))
    return item


async def failures(served: ServerProcess, model: str, reason: str) -> int:
    client = await RawClient.connect(served.ports["metrics"])
    page = (await client.request("GET", "/metrics")).body.decode()
    await client.close()
    name = f'nv_inference_request_failure{{model="{model}",version="1",reason="{reason}"}} '
    return int(page.partition(name)[2].splitlines()[0])


async def _leave_http(served: ServerProcess, model: str, is_there: asyncio.Event) -> None:
    client = await RawClient.connect(served.ports["HTTP"])
    await client.send(message("POST", f"/v2/models/{model}/infer", json.dumps(BODY).encode()))
    await is_there.wait()
    await client.close()


async def _leave_grpc(served: ServerProcess, model: str, is_there: asyncio.Event) -> None:
    async with grpcaio.InferenceServerClient(served.grpc) as client:
        call = asyncio.create_task(client.infer(model, [input_of()]))
        await is_there.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def _leave_stream(served: ServerProcess, model: str, is_there: asyncio.Event) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": model, "inputs": [input_of()]}
        await is_there.wait()

    async with grpcaio.InferenceServerClient(served.grpc) as client:
        stream = client.stream_infer(requests())
        reading = asyncio.ensure_future(anext(aiter(stream)))
        await is_there.wait()
        stream.cancel()
        with pytest.raises((asyncio.CancelledError, InferenceServerException)):
            await reading


LEAVE = {"HTTP": _leave_http, "gRPC": _leave_grpc, "gRPC stream": _leave_stream}
Leave = Callable[[ServerProcess, str, asyncio.Event], Coroutine[Any, Any, None]]


@pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)
async def test_a_model_that_looks_hears_that_its_caller_has_gone(
    served: ServerProcess, repository: Path, leave: Leave
) -> None:
    """SCH-140, SCH-141, SCH-142: handed to an instance, the model decides."""
    seen = repository / "notices" / "seen"
    seen.unlink(missing_ok=True)
    is_there = asyncio.Event()
    leaving = asyncio.create_task(leave(served, "notices", is_there))
    await wait_until(lambda: seen.exists())

    is_there.set()

    await leaving
    await wait_until(lambda: seen.read_text().split() == ["executing", "cancelled"])


@pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)
async def test_a_request_whose_caller_has_gone_leaves_the_queue_and_is_counted(
    served: ServerProcess, leave: Leave
) -> None:
    """SCH-045, SCH-142, SCH-143."""
    before = await failures(served, "slow", "CANCELED")
    running = await RawClient.connect(served.ports["HTTP"])
    body = json.dumps(BODY).encode()
    await running.send(message("POST", "/v2/models/slow/infer", body) * 2)
    await wait_until_queued(served, 1)  # the other one executes by now
    is_there = asyncio.Event()
    leaving = asyncio.create_task(leave(served, "slow", is_there))
    await wait_until_queued(served, 2)

    is_there.set()
    await leaving

    async with asyncio.timeout(5):
        while await failures(served, "slow", "CANCELED") != before + 1:
            await asyncio.sleep(0.02)
    for _ in range(2):
        assert (await running.receive()).status == 200
    await running.close()


async def wait_until_queued(served: ServerProcess, count: int) -> None:
    client = await RawClient.connect(served.ports["metrics"])
    name = 'nv_inference_pending_request_count{model="slow",version="1"} '
    async with asyncio.timeout(5):
        while True:
            page = (await client.request("GET", "/metrics")).body.decode()
            if int(page.partition(name)[2].splitlines()[0]) == count:
                break
    await client.close()


async def test_a_deadline_of_grpc_is_told_to_the_client_and_cancels_at_the_server(
    served: ServerProcess, repository: Path
) -> None:
    """SCH-144."""
    seen = repository / "notices" / "seen"
    seen.unlink(missing_ok=True)
    async with grpcaio.InferenceServerClient(served.grpc) as client:
        with pytest.raises(InferenceServerException) as caught:
            await client.infer("notices", [input_of()], client_timeout=0.3)

    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    await wait_until(lambda: seen.read_text().split()[-1] == "cancelled")


def test_a_cancelled_request_of_a_client_that_is_still_there_is_cancelled_in_its_code() -> None:
    """SCH-143."""
    from serving.errors import ErrorCode
    from serving.protocol.status import grpc_status, http_status

    assert http_status(ErrorCode.CANCELLED) == 400
    assert grpc_status(ErrorCode.CANCELLED) == grpc.StatusCode.CANCELLED.value[0]


def test_the_timeout_parameter_bounds_the_queue_and_never_an_execution(
    served: ServerProcess,
) -> None:
    """SCH-145."""
    with closing(grpcclient.InferenceServerClient(served.grpc)) as client:
        alone = client.infer("slow", [input_of()], timeout=20_000)  # executes for 300 ms
        assert alone.as_numpy("OUT").tolist() == [[1]]
        calls = [client.async_infer("slow", [input_of()], _ignore) for _ in range(2)]
        with pytest.raises(InferenceServerException, match="Request timeout expired") as caught:
            client.infer("slow", [input_of()], timeout=20_000)
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        assert len(calls) == 2


def _ignore(result: object, error: object) -> None:
    """Its answer does not matter."""
