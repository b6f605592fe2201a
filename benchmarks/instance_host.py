"""`python -m benchmarks.instance_host`: what a model in a process of its own costs.

Closed loops in one process against Python models in their child processes, without any front end.
CPU is user and system time of both sides for each request; the model's own code (an identity, about
10 us a request) and the callers' work (about 1 us) are in it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop
from numpy.typing import NDArray

from benchmarks.processes import tree_cpu_s
from serving.datatypes import BY_DTYPE
from serving.options import ServerOptions
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse
from serving.server import ModelServer

_IDENTITY = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())])
                for r in requests]
"""
_DECOUPLED = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            array = r.inputs()[0].as_numpy()
            for _ in range(100):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_CALLING = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for r in requests:
            called = pb_utils.InferenceRequest(
                model_name=CALLED, requested_output_names=["OUT"],
                inputs=[pb_utils.Tensor("IN", r.inputs()[0].as_numpy())])
            answers.append(pb_utils.InferenceResponse(called.exec().output_tensors()))
        return answers
"""
_TENSORS = """
input {{ name: "IN" data_type: TYPE_{0} dims: [-1] }}
output {{ name: "OUT" data_type: TYPE_{0} dims: [-1] }}
"""
_BATCHED = "max_batch_size: 32 dynamic_batching { max_queue_delay_microseconds: 500 }"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    model: str
    make: Callable[[], NDArray[np.generic]]
    concurrency: int
    requests: int
    note: str = ""


def _small() -> NDArray[np.generic]:
    return np.zeros(16, np.float32)


def _row() -> NDArray[np.generic]:
    return np.zeros((1, 16), np.float32)


def _image() -> NDArray[np.generic]:
    return np.zeros(150_528, np.float32)


def _texts() -> NDArray[np.generic]:
    return np.array([b"sixteen letters."] * 16, dtype=np.object_)


SCENARIOS = (
    Scenario("FP32[16], batch of 1, 1 in flight", "identity", _small, 1, 1),
    Scenario("FP32[16], batch of 1, 32 in flight", "identity", _small, 32, 4, "target: 40 us"),
    Scenario("FP32[16], batches to 32, 64 in flight", "batched", _row, 64, 8),
    Scenario("600 KB, batch of 1, 1 in flight", "identity", _image, 1, 1),
    Scenario("600 KB, batch of 1, 32 in flight", "identity", _image, 32, 1, "target: 250 us"),
    Scenario("BYTES[16], batch of 1, 32 in flight", "bytes", _texts, 32, 2),
    Scenario("decoupled, 100 responses, 8 in flight", "decoupled", _small, 8, 0),
    Scenario("BLS chain of 3, 8 in flight", "first", _small, 8, 1),
)
_MODELS = {
    "identity": (_IDENTITY, "FP32", ""),
    "batched": (_IDENTITY, "FP32", _BATCHED),
    "bytes": (_IDENTITY, "STRING", ""),
    "decoupled": (_DECOUPLED, "FP32", "model_transaction_policy { decoupled: true }"),
    "first": (_CALLING.replace("CALLED", "'second'"), "FP32", ""),
    "second": (_CALLING.replace("CALLED", "'identity'"), "FP32", ""),
}


def write_models(root: Path) -> None:
    for name, (source, datatype, config) in _MODELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text(source)
        text = f'name: "{name}" backend: "python" {_TENSORS.format(datatype)} {config}'
        (root / name / "config.pbtxt").write_text(text)


@dataclass(slots=True)
class ClosedLoop:
    """`concurrency` callers that each send the next request when the last one is answered."""

    server: ModelServer
    scenario: Scenario
    to_send: int
    to_finish: int
    finished: asyncio.Future[None]

    def send(self) -> None:
        array = self.scenario.make()
        tensor = InputTensor("IN", BY_DTYPE[array.dtype], array.shape, array)
        request = InferenceRequest(self.scenario.model, inputs={"IN": tensor})
        request.on_response = self._answered
        self.to_send -= 1
        self.server.infer(request)

    def _answered(self, response: InferenceResponse) -> None:
        if not response.is_final:
            return
        if response.error is not None:
            if not self.finished.done():
                self.finished.set_exception(response.error)
            return
        self.to_finish -= 1
        if self.to_send > 0:
            # As a front end: the next request comes in a later turn of the loop.
            self.finished.get_loop().call_soon(self.send)
        elif not self.to_finish:
            self.finished.set_result(None)


async def _run(server: ModelServer, scenario: Scenario, requests: int) -> None:
    loop = asyncio.get_running_loop()
    callers = ClosedLoop(server, scenario, requests, requests, loop.create_future())
    for _ in range(min(scenario.concurrency, requests)):
        callers.send()
    await callers.finished


async def measure(server: ModelServer, scenario: Scenario, unit: int) -> str:
    requests = scenario.requests * unit or max(1, unit // 10)
    await _run(server, scenario, max(scenario.concurrency, requests // 10))
    cpu_s, start_s = tree_cpu_s(), time.perf_counter()
    await _run(server, scenario, requests)
    wall_s = time.perf_counter() - start_s
    cpu_us = (tree_cpu_s() - cpu_s) / requests * 1e6
    return (
        f"{scenario.name:40} {requests / wall_s:10,.0f} requests/s {cpu_us:8.1f} us CPU a request"
        f"  {scenario.note}"
    )


async def main(unit: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        write_models(Path(root))
        server = ModelServer(ServerOptions((Path(root),)))
        await server.start()
        try:
            for scenario in SCENARIOS:
                print(await measure(server, scenario, unit))
        finally:
            await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000, help="per scenario, roughly")
    uvloop.run(main(parser.parse_args().requests))
