"""Input that is absurd in one dimension is refused by a real server, within bounds.

Connections that send nothing: test_http_server. What a fuzz finds: tests/system.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.frontends.http_limits import HttpLimits
from serving.frontends.http_messages import HttpRequest, HttpResponse, Reply
from serving.frontends.http_server import HttpServer
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


def bomb_of(megabytes: int, coding: str) -> bytes:
    """Zeros; packed once and repeated, which a full flush allows. What would end it is missing."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    zeros = bytes(1 << 20)
    head = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)) * (megabytes - 1)


def peak_kib(server: ServerProcess) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_decompression_bomb_is_not_inflated(
    served: ServerProcess, client: RawClient, coding: str
) -> None:
    bomb = bomb_of(512, coding)
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


class _Answering:
    def handle(self, request: HttpRequest, reply: Reply) -> None:
        reply(HttpResponse(200, [bytes(request.body)]))

    def refuse_head(self, request: HttpRequest, content_length: int) -> None:
        return None


@pytest.mark.parametrize(
    "start",
    [
        b"GET",
        b"GET /ech",
        b"GET /echo HTTP/1.1\r\nX-",
        b"POST /echo HTTP/1.1\r\nContent-Length: 100000\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n",
    ],
)
@pytest.mark.parametrize("is_trickling", [True, False])
async def test_slow_loris_connections_are_refused(start: bytes, is_trickling: bool) -> None:
    server = HttpServer(_Answering(), HttpLimits(stall_timeout_s=0.1))
    await server.start("127.0.0.1", 0)
    slow = [await RawClient.connect(server.port) for _ in range(50)]

    async def crawl(client: RawClient) -> int:
        await client.send(start)
        while is_trickling and server.connections:
            await client.send(b"x" if start != b"GET" else b" ")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    return int((await client.reader.readuntil(b"\r\n"))[9:12])
        return (await client.receive()).status

    try:
        async with asyncio.timeout(10):
            assert set(await asyncio.gather(*map(crawl, slow))) == {408}
    finally:
        for client in slow:
            await client.close()
        await server.stop(0)


async def test_a_body_that_comes_slowly_but_comes_is_answered() -> None:
    server = HttpServer(_Answering(), HttpLimits(stall_timeout_s=0.1, least_progress=100))
    await server.start("127.0.0.1", 0)
    client = await RawClient.connect(server.port)

    await client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 4000\r\n\r\n")
    for _ in range(20):
        await client.send(b"x" * 200)
        await asyncio.sleep(0.03)

    assert (await client.receive()).body == b"x" * 4000
    await client.close()
    await server.stop(0)
