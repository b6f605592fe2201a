"""Asks, while others send junk, what must always be answered: live, and a model of its own."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from random import Random
from typing import Any

import grpc.aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from benchmarks.fuzz.models import CANARY
from benchmarks.fuzz.report import Report

_PAUSE_S = 0.05
_TIMEOUT_S = 20.0
_LOG_SETTINGS = {"log_error": True, "log_verbose_level": 0}
"""Junk may have switched off the log that is looked at in the end."""


class Canary:
    def __init__(self, http_port: int, channel: grpc.aio.Channel, report: Report) -> None:
        self._http_port = http_port
        self._channel = channel
        self._report = report
        self._random = Random(1)

    async def run(self, is_over: asyncio.Event) -> None:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(self._channel).ModelInfer
        async with self._channel:
            while not is_over.is_set():
                start = time.perf_counter()
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        await self._look(infer)
                except (TimeoutError, OSError, grpc.aio.AioRpcError, AssertionError) as error:
                    self._report.find(f"canary: {error!r}", "")
                else:
                    self._report.canary_answers += 1
                took = time.perf_counter() - start
                self._report.slowest_canary_s = max(self._report.slowest_canary_s, took)
                await asyncio.sleep(_PAUSE_S)

    async def _look(self, infer: Any) -> None:
        status, _ = await self._http("GET", "/v2/health/live", b"")
        assert status == 200, f"live answers {status}"
        numbers = [float(self._random.randrange(1000)) for _ in range(5)]
        tensor = {"name": "INPUT0", "shape": [5], "datatype": "FP32", "data": numbers}
        body = json.dumps({"inputs": [tensor]}).encode()
        status, answer = await self._http("POST", f"/v2/models/{CANARY}/infer", body)
        assert status == 200, f"HTTP {status} {answer[:200]!r}"
        assert json.loads(answer)["outputs"][0]["data"] == numbers, "HTTP: wrong numbers"
        message = pb.ModelInferRequest(model_name=CANARY)
        message.inputs.add(name="INPUT0", datatype="FP32", shape=[5])
        raw = struct.pack("<5f", *numbers)
        message.raw_input_contents.append(raw)
        assert (await infer(message)).raw_output_contents == [raw], "gRPC: wrong numbers"
        await self._http("POST", "/v2/logging", json.dumps(_LOG_SETTINGS).encode())

    async def _http(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """On a connection of its own, as a new client has it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._http_port)
        head = f"{method} {path} HTTP/1.1\r\nHost: c\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        data = await reader.read()
        writer.close()
        answer, _, rest = data.partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 "), "closed without an answer"
        return int(answer[9:12]), rest
