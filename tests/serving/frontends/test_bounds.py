"""Input that is absurd in one dimension is refused by a real server, within bounds.

Connections that send slowly or nothing: test_http_server. What a fuzz finds: tests/system.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.serving.frontends.process import ServerProcess
from tests.serving.frontends.raw_http import RawClient, message

INFER = "/v2/models/identity/infer"


def body(**changes: Any) -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    return json.dumps({"inputs": [tensor | changes]}).encode()


def nested(depth: int, before: bytes = b"[", after: bytes = b"]") -> bytes:
    return before * depth + b"1" + after * depth


@pytest.fixture
async def client(served: ServerProcess) -> AsyncIterator[RawClient]:
    opened = await RawClient.connect(served.ports["HTTP"])
    yield opened
    await opened.close()


def peak_kib(server: ServerProcess) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_decompression_bomb_is_not_inflated(
    served: ServerProcess, client: RawClient, coding: str
) -> None:
    zeros = bytes(512 << 20)
    bomb = gzip.compress(zeros, 1) if coding == "gzip" else zlib.compress(zeros, 1)
    before = peak_kib(served)

    answer = await client.request("POST", INFER, bomb, Content_Encoding=coding)

    assert answer.status == 400
    assert "http-max-input-size" in answer.json["error"]
    assert peak_kib(served) - before < 300 << 10


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (INFER, b'{"inputs":[' + nested(10**5) + b"]}", ""),
        (INFER, b'{"inputs":' + nested(10**5, b'{"inputs":', b"}") + b"}", ""),
        (INFER, body(data="@").replace(b'"@"', nested(10**5)), "deep"),
        ("/v2/models/strings/generate", b'{"INPUT0":' + nested(10**5) + b"}", ""),
        ("/v2/repository/index", nested(10**5), ""),
        ("/v2/repository/models/nobody/load", nested(10**5, b'{"parameters":', b"}"), ""),
        ("/v2/logging", nested(10**5), ""),
        ("/v2/trace/setting", nested(10**5), ""),
        (INFER, body(shape=[2**40, 2**40]), "int64"),
        (INFER, body(shape=[2**63, 1]), "int64"),
        (INFER, body(shape=[10**30]), "int64"),
        (INFER, body(shape=[0, 2**62]), ""),
        (INFER, body(shape=[1] * 10**5), "dimensions"),
        (INFER, body(parameters={"binary_data_size": 2**62}), ""),
    ],
)
async def test_depth_and_shapes_without_end_are_refused(
    client: RawClient, path: str, content: bytes, words: str
) -> None:
    answer = await client.request("POST", path, content)

    assert answer.status == 400, answer.body[:300]
    assert words in answer.json["error"]
    assert len(answer.body) < 10_000
    assert (await client.request("GET", "/v2/health/live")).status == 200


async def test_a_hundred_thousand_inputs_and_outputs_are_refused(client: RawClient) -> None:
    inputs = [{"name": str(i), "datatype": "FP32", "shape": [1], "data": [1]} for i in range(10**5)]
    outputs = [{"name": str(i)} for i in range(10**5)]

    for content in ({"inputs": inputs}, json.loads(body()) | {"outputs": outputs}):
        answer = await client.request("POST", INFER, json.dumps(content).encode())
        assert answer.status == 400
        assert len(answer.body) < 10_000


async def test_a_hundred_thousand_inputs_are_refused_over_grpc(served: ServerProcess) -> None:
    request = service_pb2.ModelInferRequest(model_name="identity")
    for number in range(10**5):
        request.inputs.add(name=str(number), datatype="FP32", shape=[1])

    with grpc.insecure_channel(served.grpc) as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            infer(request)


async def test_too_many_chunks_are_refused(client: RawClient) -> None:
    head = message("POST", INFER, Transfer_Encoding="chunked").replace(
        b"Content-Length: 0\r\n", b""
    )
    await client.send(head + b"1\r\n \r\n" * 65_537)

    assert (await client.receive()).status == 400
    assert await client.is_closed()
