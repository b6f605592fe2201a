"""`python -m benchmarks.schedulers`: what a scheduler costs a request, and what many models cost.

First table: closed loops with 1, 32 and 256 requests in flight over an instance host that answers
in the next turn of the loop, so that nothing but scheduling is measured. CPU microseconds of the
process for a request, less those of the same loop without a scheduler; the best of several rounds.
Ensembles are chains of four steps whose models answer the same way; their figure is for a step.

Second table: a request through `ModelServer.infer` to one identity model, while 1 and while 1,000
models are loaded, measured in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from google.protobuf import text_format

from serving.clock import LoopClock
from serving.config.decode import ModelSpec, decode
from serving.config.protobuf import pb
from serving.datatypes import BY_NAME
from serving.instance.base import Batch, deliver
from serving.instance.pool import InstancePool
from serving.leases import Leases
from serving.options import ControlMode, ServerOptions
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.base import Scheduler
from serving.scheduling.factory import make_scheduler
from serving.server import ModelServer
from serving.services import ModelServices

IN_FLIGHT = (1, 32, 256)
_FP32 = BY_NAME["FP32"]
_ARRAY = np.zeros((1, 16), np.float32)
_STEPS = 4
_SEQUENCE_LENGTH = 10
_IO = """
max_batch_size: 256
input { name: "IN" data_type: TYPE_FP32 dims: [16] }
output { name: "OUT" data_type: TYPE_FP32 dims: [16] }
"""
_CONTROLS = """
control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] } }
"""
SCHEDULERS = {
    "default": "",
    "dynamic": "dynamic_batching { }",
    "dynamic, ordered": "dynamic_batching { preserve_ordering: true }",
    "dynamic, 3 levels": "dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
    "dynamic, timeouts": """dynamic_batching {
        default_queue_policy { default_timeout_microseconds: 60000000 } }""",
    "sequence, direct": f"sequence_batching {{ direct {{ }} {_CONTROLS} }}",
    "sequence, oldest": f"""sequence_batching {{
        oldest {{ max_candidate_sequences: 256 }} {_CONTROLS} }}""",
}


class InstantHost:
    """Of `InstanceHost`, what a scheduler uses; answers a batch in the next turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.name = "m_0_0"
        self.on_state_change: Callable[[], None] | None = None
        self.is_ready = True
        self.unready_reason = ""
        self.has_failed = False
        self.burst_limit = 1
        self.takes_ahead = False
        self._loop = loop

    def execute(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        self._loop.call_soon(self._finish, batch, done)

    def _finish(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        now_ns = time.monotonic_ns()
        batch.times.compute_start_ns = batch.times.compute_end_ns = now_ns
        batch.stamp_requests()
        done(batch)
        for request in batch.requests:
            deliver(request, InferenceResponse("m", 1, request.id))


class Unscheduled:
    """What stays without a scheduler: the requests of one turn of the loop go to the host."""

    def __init__(self, host: InstantHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._waiting: list[InferenceRequest] = []

    def enqueue(self, request: InferenceRequest) -> None:
        if not self._waiting:
            self._loop.call_soon(self._run)
        self._waiting.append(request)

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._host.execute(Batch(waiting, len(waiting)), lambda _: None)


@dataclass(slots=True)
class Caller:
    """Sends the next request when the last one is answered, as a front end does."""

    loop: ClosedLoop
    number: int
    sent: int = 0

    def send(self) -> None:
        request = InferenceRequest("m", 1, inputs={"IN": InputTensor("IN", _FP32, (1, 16), _ARRAY)})
        request.correlation_id = self.number + 1
        request.sequence_start = self.sent % _SEQUENCE_LENGTH == 0
        self.sent += 1
        request.sequence_end = self.sent % _SEQUENCE_LENGTH == 0
        self.loop.hand_over(request, self._answered)

    def _answered(self, response: InferenceResponse) -> None:
        self.loop.count(self, response)


@dataclass(slots=True)
class ClosedLoop:
    enqueue: Callable[[InferenceRequest], None]
    to_send: int
    finished: asyncio.Future[None]
    to_finish: int = field(init=False)

    def __post_init__(self) -> None:
        self.to_finish = self.to_send

    def hand_over(
        self, request: InferenceRequest, answered: Callable[[InferenceResponse], None]
    ) -> None:
        self.to_send -= 1
        request.on_response = answered
        request.deliver = _deliver
        self.enqueue(request)

    def count(self, caller: Caller, response: InferenceResponse) -> None:
        if response.error is not None:
            self.finished.set_exception(response.error)
            return
        self.to_finish -= 1
        if self.to_send > 0:
            self.finished.get_loop().call_soon(caller.send)
        elif not self.to_finish:
            self.finished.set_result(None)


def _deliver(request: InferenceRequest, response: InferenceResponse) -> None:
    assert request.on_response is not None
    request.on_response(response)


class Part:
    """A model of an ensemble that answers in the next turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.version, self.namespace = "part", 1, ""
        self.config = _config('name: "part"', "")
        self.spec = decode(self.config)
        self.leases = Leases()
        self.is_ready, self.unready_reason = True, ""
        self.ensemble = None
        self.hosts = ()
        self._loop = loop
        self._output = [OutputTensor("OUT", _FP32, (1, 16), _ARRAY)]

    def labels_of(self, output_name: str) -> list[str]:
        return []

    def infer(self, request: InferenceRequest) -> None:
        self._loop.call_soon(self._answer, request)

    def _answer(self, request: InferenceRequest) -> None:
        assert request.on_response is not None
        request.on_response(InferenceResponse("part", 1, request.id, self._output))


class Calls:
    """Of `ModelCalls`, what an ensemble asks for: every model is the part."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def model(self, name: str, version: int = -1, namespace: str = "") -> Part:
        return self._part

    def sequence_holder(self, name: str, version: int, correlation_id: int | str) -> None:
        return None


def _config(head: str, scheduling: str) -> pb.ModelConfig:
    return text_format.Parse(head + _IO + scheduling, pb.ModelConfig())


def chain_config() -> pb.ModelConfig:
    steps = []
    for number in range(_STEPS):
        source = f"t{number}" if number else "IN"
        target = f"t{number + 1}" if number < _STEPS - 1 else "OUT"
        steps.append(
            f'step {{ model_name: "part" model_version: -1 '
            f'input_map {{ key: "IN" value: "{source}" }} '
            f'output_map {{ key: "OUT" value: "{target}" }} }}'
        )
    return _config('name: "m" platform: "ensemble"', f"ensemble_scheduling {{ {' '.join(steps)} }}")


async def cpu_us(
    enqueue: Callable[[InferenceRequest], None], concurrency: int, count: int
) -> float:
    """CPU microseconds of the process for one request of a closed loop."""
    loop = asyncio.get_running_loop()
    closed = ClosedLoop(enqueue, count, loop.create_future())
    callers = [Caller(closed, number) for number in range(concurrency)]
    gc.collect()
    start_ns = time.process_time_ns()
    for caller in callers:
        caller.send()
    await closed.finished
    return (time.process_time_ns() - start_ns) / 1000 / count


def _schedulers(loop: asyncio.AbstractEventLoop) -> Iterator[tuple[str, int, Scheduler]]:
    """Name, executions of a request, and a new scheduler."""
    calls: Any = Calls(Part(loop))
    services = ModelServices(LoopClock(loop), calls=calls)
    for name, scheduling in SCHEDULERS.items():
        yield name, 1, _scheduler(decode(_config('name: "m"', scheduling)), services, loop)
    yield "ensemble, a step", _STEPS, _scheduler(decode(chain_config()), services, loop)


def _scheduler(
    spec: ModelSpec, services: ModelServices, loop: asyncio.AbstractEventLoop
) -> Scheduler:
    host: Any = InstantHost(loop)
    return make_scheduler(spec, InstancePool([host]), services, lambda _: None)


async def measure(concurrency: int, count: int, rounds: int) -> dict[str, float]:
    """Scheduler -> microseconds for a request, or for a step of an ensemble."""
    loop = asyncio.get_running_loop()
    best: dict[str, float] = {}
    # Callers keep whole sequences: every round sends a multiple of their length.
    unit = concurrency * _SEQUENCE_LENGTH
    count = max(1, count // unit) * unit
    for _ in range(rounds):
        bare = Unscheduled(InstantHost(loop), loop)
        found = {"": await cpu_us(bare.enqueue, concurrency, count)}
        for name, executions, scheduler in _schedulers(loop):
            found[name] = await cpu_us(scheduler.enqueue, concurrency, count) / executions
            await scheduler.stop()
        best = {name: min(value, best.get(name, value)) for name, value in found.items()}
    base = best.pop("")
    return {
        name: value - (base / _STEPS if name.startswith("ensemble") else base)
        for name, value in best.items()
    }


async def growth(models: int, count: int, rounds: int) -> tuple[float, float]:
    """CPU microseconds for a request with one loaded model, and with that many."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(models):
            path = Path(folder) / f"m{number or ''}" / "1"
            path.mkdir(parents=True)
            text = f'backend: "identity" {_IO} dynamic_batching {{ }}'
            (path.parent / "config.pbtxt").write_text(text)
        few = ModelServer(_options(Path(folder), "m"))
        many = ModelServer(_options(Path(folder), "*"))
        await few.start()
        await many.start()
        best = [float("inf"), float("inf")]
        for _ in range(rounds):
            for index, server in enumerate((few, many)):
                best[index] = min(best[index], await cpu_us(server.infer, 32, count))
        await few.stop()
        await many.stop()
    return best[0], best[1]


def _options(folder: Path, names: str) -> ServerOptions:
    return ServerOptions((folder,), model_control_mode=ControlMode.EXPLICIT, load_models=(names,))


async def _main(options: argparse.Namespace) -> None:
    print("CPU us a request    " + "".join(f"{f'c={number}':>8}" for number in IN_FLIGHT))
    columns = [await measure(number, options.requests, options.rounds) for number in IN_FLIGHT]
    for name in columns[0]:
        print(f"{name:20}" + "".join(f"{column[name]:8.2f}" for column in columns))
    if options.models > 1:
        few, many = await growth(options.models, options.requests, options.rounds)
        print("\nCPU us a request through ModelServer.infer, c=32, identity in a thread")
        print(
            f"1 model loaded {few:.1f}, {options.models} models loaded {many:.1f}: "
            f"{(many / few - 1) * 100:+.1f} %"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.schedulers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=20_000, help="for each cell and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=int, default=1000, help="1: leave out the second table")
    uvloop.run(_main(parser.parse_args()))
