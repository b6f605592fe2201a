"""`python -m benchmarks.core`: what `Model.infer` costs without any front end.

Closed loops in one process over the identity backend in an instance thread, FP32[16], with the
default scheduler and with the dynamic batcher. CPU is user and system time of the whole process
for each request, so the callers' own work (about 1 us) is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop
from google.protobuf import text_format

from serving.backends.base import ModelContext
from serving.backends.identity import IdentityBackend
from serving.clock import LoopClock
from serving.config.decode import decode
from serving.config.protobuf import pb
from serving.datatypes import BY_NAME
from serving.model import Model
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse
from serving.services import ModelServices

_CONFIG = """
name: "identity" backend: "identity" max_batch_size: 64
input { name: "IN" data_type: TYPE_FP32 dims: [16] }
output { name: "OUT" data_type: TYPE_FP32 dims: [16] }
"""
_FP32 = BY_NAME["FP32"]


@dataclass(slots=True)
class ClosedLoop:
    """`concurrency` callers that each send the next request when the last one is answered."""

    model: Model
    to_send: int
    to_finish: int
    finished: asyncio.Future[None]

    def send(self) -> None:
        array = np.zeros((1, 16), np.float32)
        tensor = InputTensor("IN", _FP32, array.shape, array)
        request = InferenceRequest("identity", inputs={"IN": tensor})
        request.on_response = self._answered
        self.to_send -= 1
        self.model.infer(request)

    def _answered(self, response: InferenceResponse) -> None:
        if response.error is not None:
            self.finished.set_exception(response.error)
            return
        self.to_finish -= 1
        if self.to_send > 0:
            # As a front end: the next request comes in a later turn of the loop.
            self.finished.get_loop().call_soon(self.send)
        elif not self.to_finish:
            self.finished.set_result(None)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(scheduling: str, concurrency: int, requests: int) -> str:
    loop = asyncio.get_running_loop()
    config = text_format.Parse(_CONFIG + scheduling, pb.ModelConfig())
    context = ModelContext(decode(config), config, 1, Path())
    model = await Model.load(context, IdentityBackend(), ModelServices(LoopClock(loop)))
    callers = ClosedLoop(model, requests, requests, loop.create_future())
    cpu_s, start_s = _cpu_s(), time.perf_counter()
    for _ in range(concurrency):
        callers.send()
    await callers.finished
    elapsed_s, cpu_us = time.perf_counter() - start_s, (_cpu_s() - cpu_s) * 1e6
    snapshot = model.stats.snapshot()
    await model.drain_and_close()
    p50, _, p99 = snapshot.latency_percentiles_us()
    return (
        f"{scheduling.partition(' ')[0] or 'default':18} {concurrency:3} "
        f"{requests / elapsed_s:9.0f} {cpu_us / requests:8.1f} {p50:8.0f} {p99:8.0f} "
        f"{snapshot.mean_batch_size:6.1f}"
    )


async def _main(requests: int) -> None:
    print("scheduler            c   requests/s  CPU us   p50 us   p99 us  batch")
    for scheduling in ("", "dynamic_batching {}"):
        for concurrency in (1, 8, 32):
            print(await measure(scheduling, concurrency, requests))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    uvloop.run(_main(parser.parse_args().requests))
