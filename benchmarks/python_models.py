"""`python -m benchmarks.python_models`: an identity in Python over HTTP and gRPC, and the same
model file on a real Triton where one is at hand.

`--triton COMMAND` starts it: COMMAND gets the model repository as its argument and HTTP_PORT,
GRPC_PORT and METRICS_PORT in its environment. Cells of both servers alternate. CPU is user and
system time of the server's process tree for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvloop

from benchmarks import processes
from benchmarks.load import Load, Result, over_grpc, over_http
from benchmarks.processes import Server
from tests.ports import free_ports

_SOURCE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())])
            for r in requests
        ]
"""
_CONFIG = """
name: "{name}" backend: "python" max_batch_size: 0
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }}
instance_group [{{ kind: KIND_CPU count: 1 }}]
"""
SIZES = {"small": (16,), "large": (150_528,)}
_START_S = 90.0


@dataclass(frozen=True, slots=True)
class Cell:
    result: Result
    cpu_us: float


def write_models(root: Path) -> None:
    for name, shape in SIZES.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text(_SOURCE)
        config = _CONFIG.format(name=name, dims=", ".join(map(str, shape)))
        (root / name / "config.pbtxt").write_text(config)


@contextmanager
def triton(command: str, repository: Path) -> Iterator[Server]:
    http, grpc, metrics = free_ports(3)
    ports = {"HTTP_PORT": str(http), "GRPC_PORT": str(grpc), "METRICS_PORT": str(metrics)}
    process = subprocess.Popen(
        [command, str(repository)],
        env=os.environ | ports,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + _START_S
        while not _is_ready(http):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command} did not start a server on port {http}")
            time.sleep(0.2)
        yield Server("triton", process.pid, http, grpc)
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def measure(server: Server, protocol: str, load: Load, concurrency: int, seconds: float) -> Cell:
    async def run() -> Cell:
        before_s = server.cpu_s()
        if protocol == "HTTP":
            result = await over_http(server.http_port, load, concurrency, seconds)
        else:
            result = await over_grpc(server.grpc_port, load, concurrency, seconds)
        cpu_s = server.cpu_s() - before_s
        return Cell(result, cpu_s / (result.requests + concurrency) * 1e6)

    runner = uvloop.run if protocol == "HTTP" else asyncio.run
    return runner(run())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.python_models")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--triton", help="command that starts a real Triton")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        write_models(Path(root))
        servers = [stack.enter_context(processes.conch(Path(root)))]
        if options.triton:
            servers.append(stack.enter_context(triton(options.triton, Path(root))))
        for protocol in ("HTTP", "gRPC"):
            for size, shape in SIZES.items():
                load = Load(size, shape)
                for concurrency in options.concurrency:
                    for server in servers:
                        cell = measure(server, protocol, load, concurrency, options.seconds)
                        _print(server, protocol, size, concurrency, cell)
    return 0


def _print(server: Server, protocol: str, size: str, concurrency: int, cell: Cell) -> None:
    print(
        f"{server.name:8}{protocol:6}{size:7}{concurrency:>3} in flight "
        f"{cell.result.rate:>9,.0f} requests/s  p50 {cell.result.p50_us:>8,.0f} us "
        f"{cell.cpu_us:>8.1f} us CPU a request  {1e6 / cell.cpu_us:>8,.0f} requests a CPU second",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
