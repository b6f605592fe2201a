"""Load generators: closed loops over raw HTTP sockets and over one grpc.aio channel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

Call = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Load:
    """One request of the benchmark, ready to send over either protocol."""

    model: str
    shape: tuple[int, ...]
    input_name: str = "INPUT0"
    output_name: str = "OUTPUT0"
    raw: bytes = b""
    """The tensor's content; numbers counted up where it is left empty."""
    http: bytes = field(init=False)
    message: Any = field(init=False)

    def __post_init__(self) -> None:
        self.raw = self.raw or np.arange(np.prod(self.shape), dtype=np.float32).tobytes()
        shape = ",".join(map(str, self.shape))
        text = (
            f'{{"inputs":[{{"name":"{self.input_name}","datatype":"FP32","shape":[{shape}],'
            f'"parameters":{{"binary_data_size":{len(self.raw)}}}}}],'
            f'"outputs":[{{"name":"{self.output_name}","parameters":{{"binary_data":true}}}}]}}'
        ).encode()
        head = (
            f"POST /v2/models/{self.model}/infer HTTP/1.1\r\nHost: bench\r\n"
            f"Inference-Header-Content-Length: {len(text)}\r\n"
            f"Content-Length: {len(text) + len(self.raw)}\r\n\r\n"
        ).encode()
        self.http = head + text + self.raw
        self.message = service_pb2.ModelInferRequest(model_name=self.model)
        self.message.inputs.add(name=self.input_name, datatype="FP32", shape=self.shape)
        self.message.raw_input_contents.append(self.raw)


@dataclass(frozen=True, slots=True)
class Result:
    requests: int
    seconds: float
    p50_us: float
    p99_us: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class _HttpClient(asyncio.Protocol):
    """One connection; counts the bytes of each response instead of parsing it in full."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._missing = -1
        self._waiter: asyncio.Future[None] | None = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc or ConnectionError("the server closed the connection"))

    def send(self, data: bytes) -> asyncio.Future[None]:
        self._received.clear()
        self._missing = -1
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        if self._missing >= 0:
            self._missing -= len(data)
        else:
            self._received += data
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            if not head.startswith(b"http/1.1 200"):
                raise RuntimeError(f"unexpected answer: {bytes(self._received[:200])!r}")
            length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
            self._missing = length - (len(self._received) - end - 4)
        if self._missing <= 0 and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def over_http(port: int, load: Load, concurrency: int, seconds: float) -> Result:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(concurrency):
        _, client = await loop.create_connection(_HttpClient, "127.0.0.1", port)
        clients.append(client)
    calls: list[Call] = [_http_call(client, load.http) for client in clients]
    try:
        return await _drive(calls, seconds)
    finally:
        for client in clients:
            client.transport.close()


def _http_call(client: _HttpClient, data: bytes) -> Call:
    async def call() -> None:
        await client.send(data)

    return call


async def over_grpc(port: int, load: Load, concurrency: int, seconds: float) -> Result:
    size = ("grpc.max_receive_message_length", -1)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[size]) as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer

        async def call() -> None:
            answer = await infer(load.message)
            assert len(answer.raw_output_contents[0]) == len(load.raw)

        return await _drive([call] * concurrency, seconds)


async def _drive(calls: list[Call], seconds: float) -> Result:
    """Every call in a loop of its own, the next one when the answer has come."""
    latencies: list[int] = []
    for call in calls:
        await call()
    start_ns = time.perf_counter_ns()
    end_ns = start_ns + int(seconds * 1e9)

    async def repeat(call: Call) -> None:
        now_ns = time.perf_counter_ns()
        while now_ns < end_ns:
            before_ns = now_ns
            await call()
            now_ns = time.perf_counter_ns()
            latencies.append(now_ns - before_ns)

    await asyncio.gather(*map(repeat, calls))
    elapsed_s = (time.perf_counter_ns() - start_ns) / 1e9
    p50, p99 = np.percentile(np.array(latencies), (50, 99)) / 1000
    return Result(len(latencies), elapsed_s, float(p50), float(p99))
