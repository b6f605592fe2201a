"""`python -m benchmarks.backends`: what serving costs on top of each runtime.

For each installed backend one model that takes 5 ms or more: the bare runtime in a loop, the
served model in this process (the core alone), and over HTTP from another process. Every one has one
thread of the runtime and the same rows in each request; served, two requests are in flight, so that
the next is there when one has ended. Rounds alternate; the figures are medians of the rounds'
ratios, served / bare: rows per second, and rows per second of CPU time, which other work on the
machine disturbs less. The target is 0.90.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.load import Load, over_http
from benchmarks.processes import Server, conch, tree_cpu_s
from benchmarks.runtimes import CASES, WIDTH, Array, Case, Run, weights
from serving.in_process import Model, ModelServer

IN_FLIGHT = 2
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def config_of(case: Case) -> str:
    given, made = case.tensors
    return f"""name: "{case.backend}" backend: "{case.backend}" max_batch_size: 4096
input {{ name: "{given}" data_type: TYPE_FP32 dims: [ {WIDTH} ] }}
output {{ name: "{made}" data_type: TYPE_FP32 dims: [ {case.width} ] }}
instance_group [{{ kind: KIND_CPU count: 1 }}]
{case.config}"""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows for each second, of the clock and of CPU time."""

    by_clock: float
    by_cpu: float

    def of(self, bare: Rate) -> Rate:
        return Rate(self.by_clock / bare.by_clock, self.by_cpu / bare.by_cpu)


def bare_rate(run: Run, rows: Array, seconds: float) -> Rate:
    run(rows)
    count, begin, begin_cpu = 0, time.perf_counter(), time.process_time()
    while (now := time.perf_counter()) < begin + seconds:
        run(rows)
        count += 1
    done = count * len(rows)
    return Rate(done / (now - begin), done / (time.process_time() - begin_cpu))


def core_rate(model: Model, name: str, rows: Array, seconds: float) -> Rate:
    """This process is the server: its CPU time, and that of instance processes."""
    inputs: dict[str, Any] = {name: rows}
    model.infer(inputs)
    waiting = deque(model.submit(inputs) for _ in range(IN_FLIGHT))
    count, begin, begin_cpu = 0, time.perf_counter(), tree_cpu_s()
    while (now := time.perf_counter()) < begin + seconds:
        waiting.popleft().result()
        waiting.append(model.submit(inputs))
        count += 1
    cpu_s = tree_cpu_s() - begin_cpu
    for answer in waiting:
        answer.result()
    done = count * len(rows)
    return Rate(done / (now - begin), done / cpu_s)


def http_rate(server: Server, load: Load, seconds: float) -> Rate:
    begin_cpu = server.cpu_s()
    result = asyncio.run(over_http(server.http_port, load, IN_FLIGHT, seconds))
    requests = result.requests + IN_FLIGHT  # the first of each connection is not timed
    cpu_s = server.cpu_s() - begin_cpu
    return Rate(result.rate * load.shape[0], requests * load.shape[0] / cpu_s)


def measure(case: Case, root: Path, seconds: float, rounds: int) -> str:
    folder = root / case.backend / "1"
    folder.mkdir(parents=True)
    run = case.write(folder, weights())
    (root / case.backend / "config.pbtxt").write_text(config_of(case))
    rows = np.random.default_rng(2).standard_normal((case.rows, WIDTH)).astype(np.float32)
    load = Load(case.backend, (case.rows, WIDTH), *case.tensors, raw=rows.tobytes())
    cores, https, bares = [], [], []
    options = ("--model-control-mode=explicit", f"--load-model={case.backend}")
    # One after the other: an idle server beside it would still take part in the measurement.
    with ModelServer(root) as here:
        model = here.load(case.backend)
        for _ in range(rounds):
            bares.append(bare_rate(run, rows, seconds))
            cores.append(core_rate(model, case.tensors[0], rows, seconds).of(bares[-1]))
    with conch(root, *options) as server:
        for _ in range(rounds):
            bares.append(bare_rate(run, rows, seconds))
            https.append(http_rate(server, load, seconds).of(bares[-1]))
    shutil.rmtree(root / case.backend)
    bare = median(bares)
    served = median(cores), median(https)
    cells = [f"{rate.by_clock:>6.2f} {rate.by_cpu:>6.2f}" for rate in served]
    took_ms = case.rows / bare.by_cpu * 1000
    return f"{case.backend:<12} {case.rows:>5} {took_ms:>8.1f}  {cells[0]}  {cells[1]}"


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it is in
        return False


def median(rates: list[Rate]) -> Rate:
    return Rate(
        statistics.median(rate.by_clock for rate in rates),
        statistics.median(rate.by_cpu for rate in rates),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("backends", nargs="*", help="default: all that are installed")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each cell")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    heads = f"{'core':>6} {'CPU':>6}  {'HTTP':>6} {'CPU':>6}"
    print(f"{'backend':<12} {'rows':>5} {'ms a run':>8}  {heads}")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if options.backends and case.backend not in options.backends:
                continue
            if not is_installed(case.module):
                print(f"{case.backend:<12} {case.module} is not installed")
                continue
            print(measure(case, Path(folder), options.seconds, options.rounds), flush=True)


if __name__ == "__main__":
    if not _ONE_THREAD.items() <= os.environ.items():  # anew: runtimes read it when imported
        arguments = [sys.executable, "-m", "benchmarks.backends", *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | _ONE_THREAD)
    uvloop.install()
    main()
