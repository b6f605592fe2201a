"""`python -m benchmarks.infer`: what an inference through the front ends costs.

An identity model, so that everything measured is the server's own work: FP32[16], and with --large
also 1x3x224x224 (600 KB), over HTTP and gRPC at concurrency 1, 8 and 32. The figure to trust is the
server's CPU time for a request, as a ratio to the reference server in the same run; rates and
latencies depend on what else the machine does. The load generator runs beside the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from benchmarks import processes
from benchmarks.load import Load, Result, over_grpc, over_http

Generator = Callable[[int, Load, int, float], Awaitable[Result]]

_CONFIG = """\
backend: "identity"
max_batch_size: {batch}
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }}
"""


@dataclass(frozen=True, slots=True)
class Cell:
    server: str
    protocol: str
    size: str
    concurrency: int
    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float
    """User and system time of the server's process tree for one request."""


def main() -> int:
    options = _parse()
    loads = {"64 B": Load("small", (1, 16))}
    if options.large:
        loads["600 KB"] = Load("large", (1, 3, 224, 224))
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as folder:
        _write_model(Path(folder), "small", "16")
        _write_model(Path(folder), "large", "3, 224, 224")
        with processes.conch(Path(folder)) as conch, processes.reference() as reference:
            for size, load in loads.items():
                for concurrency in options.concurrency:
                    for server, protocol, port, generator in (
                        (reference, "HTTP", reference.http_port, over_http),
                        (conch, "HTTP", conch.http_port, over_http),
                        (conch, "gRPC", conch.grpc_port, over_grpc),
                    ):
                        cell = _measure(
                            server, protocol, port, generator, (size, load), concurrency, options
                        )
                        cells.append(cell)
                        if not options.json:
                            _print(cell, cells)
    if options.json:
        json.dump([asdict(cell) for cell in cells], sys.stdout, indent=1)
        print()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.infer")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--large", action="store_true", help="600 KB tensors too")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    return parser.parse_args()


def _write_model(root: Path, name: str, dims: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(_CONFIG.format(batch=64, dims=dims))


def _measure(
    server: processes.Server,
    protocol: str,
    port: int,
    generator: Generator,
    load: tuple[str, Load],
    concurrency: int,
    options: argparse.Namespace,
) -> Cell:
    async def run() -> tuple[Result, float]:
        before_s = server.cpu_s()
        result = await generator(port, load[1], concurrency, options.seconds)
        return result, server.cpu_s() - before_s

    runner = uvloop.run if protocol == "HTTP" else asyncio.run
    result, cpu_s = runner(run())
    return Cell(
        server.name,
        protocol,
        load[0],
        concurrency,
        round(result.rate, 1),
        round(result.p50_us, 1),
        round(result.p99_us, 1),
        round(cpu_s / (result.requests + concurrency) * 1e6, 1),
    )


def _print(cell: Cell, cells: list[Cell]) -> None:
    if len(cells) == 1:
        print(
            f"{'server':<14}{'protocol':<10}{'size':<8}{'c':>3}{'req/s':>10}{'p50 us':>10}"
            f"{'p99 us':>10}{'CPU us':>9}{'CPU x':>7}"
        )
    reference = next(
        other
        for other in cells
        if (other.protocol, other.size, other.concurrency) == ("HTTP", cell.size, cell.concurrency)
    )
    ratio = cell.cpu_us / reference.cpu_us if reference.cpu_us else float("nan")
    print(
        f"{cell.server:<14}{cell.protocol:<10}{cell.size:<8}{cell.concurrency:>3}"
        f"{cell.requests_per_s:>10.0f}{cell.p50_us:>10.0f}{cell.p99_us:>10.0f}{cell.cpu_us:>9.1f}"
        f"{ratio:>7.2f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
