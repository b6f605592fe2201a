"""`python -m benchmarks.reload_under_load`: reloads of a slow-starting model under traffic.

A Python model that takes 3 s to start is reloaded 20 times, in turn by an edit of the version that
serves and by a newer version, while requests arrive at a fixed rate over HTTP and gRPC, whether
earlier ones have been answered or not. Every answer carries the generation that wrote it, so a
mix-up would show: an answer of a generation that nobody had loaded then, or of a version that the
response does not name. Exit status 1 on any failed request or mix-up.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from benchmarks import processes

MODEL = "slow_start"
_TIMEOUT_S = 30.0
_GRPC_EVERY = 2
_SETTLE_S = 1.0

_CONFIG = """\
backend: "python"
max_batch_size: 0
input { name: "X" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "GENERATION" data_type: TYPE_INT32 dims: [ 2 ] }
instance_group { count: 1 kind: KIND_CPU }
"""

_SOURCE = """\
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        time.sleep({startup_s})
        self.answer = np.array([{generation}, int(args["model_version"])], dtype=np.int32)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("GENERATION", self.answer)])
            for _ in requests
        ]
"""


@dataclass(slots=True)
class Outcome:
    latencies_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    mix_ups: list[str] = field(default_factory=list)
    reload_s: list[float] = field(default_factory=list)

    def text(self) -> str:
        latencies = np.array(self.latencies_ms or [0.0])
        p50, p99 = np.percentile(latencies, [50, 99])
        lines = [
            f"requests        {len(self.latencies_ms) + len(self.failures)}",
            f"failed          {len(self.failures)}",
            f"version mix-ups {len(self.mix_ups)}",
            f"latency         p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {latencies.max():.0f} ms",
            f"reloads         {len(self.reload_s)}, longest {max(self.reload_s, default=0):.2f} s",
        ]
        return "\n".join([*lines, *self.failures[:5], *self.mix_ups[:5]])


class Experiment:
    def __init__(self, repository: Path, server: processes.Server, startup_s: float) -> None:
        self.outcome = Outcome()
        self._repository = repository
        self._server = server
        self._startup_s = startup_s
        self._version_of: dict[int, int] = {}
        self._oldest = self._newest = 1
        """Generations that may answer now."""

    async def run(self, rate: float, reloads: int) -> Outcome:
        url = f"http://127.0.0.1:{self._server.http_port}/v2"
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._server.grpc_port}")
        async with aiohttp.ClientSession() as session, channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            await self._load(session, url, 1, 1)
            self.outcome.reload_s.clear()
            is_over = asyncio.Event()
            traffic = asyncio.create_task(self._traffic(session, url, stub, rate, is_over))
            version = 1
            for generation in range(2, reloads + 2):
                version += generation % 2
                await self._load(session, url, generation, version)
                await asyncio.sleep(min(_SETTLE_S, self._startup_s))
            is_over.set()
            await traffic
        return self.outcome

    async def _load(self, session: Any, url: str, generation: int, version: int) -> None:
        """Afterwards only `generation` may answer a new request."""
        self._write(generation, version)
        self._newest = generation
        started = time.monotonic()
        async with session.post(f"{url}/repository/models/{MODEL}/load") as response:
            if response.status != 200:
                raise RuntimeError(f"load failed: {await response.text()}")
        self.outcome.reload_s.append(time.monotonic() - started)
        self._oldest = generation

    def _write(self, generation: int, version: int) -> None:
        self._version_of[generation] = version
        directory = self._repository / MODEL
        (directory / str(version)).mkdir(parents=True, exist_ok=True)
        if not (directory / "config.pbtxt").exists():
            (directory / "config.pbtxt").write_text(_CONFIG)
        source = _SOURCE.format(startup_s=self._startup_s, generation=generation)
        (directory / str(version) / "model.py").write_text(source)
        for old in range(1, version - 1):
            shutil.rmtree(directory / str(old), ignore_errors=True)

    async def _traffic(
        self, session: Any, url: str, stub: Any, rate: float, is_over: asyncio.Event
    ) -> None:
        running: set[asyncio.Task[None]] = set()
        start = time.monotonic()
        number = 0
        while not is_over.is_set():
            call = _by_grpc(stub) if number % _GRPC_EVERY else _by_http(session, url)
            task = asyncio.create_task(self._ask(call))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        await asyncio.gather(*running)

    async def _ask(self, call: Any) -> None:
        oldest, started = self._oldest, time.monotonic()
        try:
            generation, own_version, named_version = await call
        except Exception as error:
            self.outcome.failures.append(f"{type(error).__name__}: {error}"[:300])
            return
        self.outcome.latencies_ms.append((time.monotonic() - started) * 1e3)
        is_right = (
            oldest <= generation <= self._newest
            and own_version == named_version == self._version_of[generation]
        )
        if not is_right:
            self.outcome.mix_ups.append(
                f"generation {generation} of version {own_version} answered as {named_version} "
                f"while {oldest} to {self._newest} could"
            )


async def _by_http(session: Any, url: str) -> tuple[int, int, int]:
    body = {"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [0]}]}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with session.post(f"{url}/models/{MODEL}/infer", json=body, timeout=timeout) as response:
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {await response.text()}")
        answer = await response.json()
    generation, version = answer["outputs"][0]["data"]
    return generation, version, int(answer["model_version"])


async def _by_grpc(stub: Any) -> tuple[int, int, int]:
    request = service_pb2.ModelInferRequest(model_name=MODEL)
    request.inputs.add(name="X", datatype="INT32", shape=[1])
    request.raw_input_contents.append(np.zeros(1, dtype=np.int32).tobytes())
    answer = await stub.ModelInfer(request, timeout=_TIMEOUT_S)
    generation, version = np.frombuffer(answer.raw_output_contents[0], dtype=np.int32)
    return int(generation), int(version), int(answer.model_version)


def measure(rate: float, reloads: int, startup_s: float) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        with processes.conch(repository, "--model-control-mode=explicit") as server:
            experiment = Experiment(repository, server, startup_s)
            return asyncio.run(experiment.run(rate, reloads))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--startup", type=float, default=3.0, help="seconds")
    options = parser.parse_args()
    outcome = measure(options.rate, options.reloads, options.startup)
    sys.stdout.write(outcome.text() + "\n")
    return 1 if outcome.failures or outcome.mix_ups else 0


if __name__ == "__main__":
    sys.exit(main())
