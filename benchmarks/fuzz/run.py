"""One run: a server, junk for it over several connections, and a look at it all the while."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.fuzz import grpc_cases, http_cases
from benchmarks.fuzz.canary import Canary
from benchmarks.fuzz.models import REGION_BYTES, REGION_KEY, write_repository
from benchmarks.fuzz.mutate import Mutator
from benchmarks.fuzz.report import Report
from benchmarks.fuzz.senders import GrpcSender, HttpSender
from benchmarks.processes import Server, conch

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*.*\n?")
_OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--allow-client-shm=true",
    "--http-header-forward-pattern=triton.*",
)


@dataclass(frozen=True, slots=True)
class Plan:
    requests: int
    seed: int = 1
    connections: int = 8
    """Of each protocol."""
    warm_up: float = 0.25
    """The part of the requests after which memory must not grow any more."""
    with_python: bool = False
    only: int | None = None
    """The number of the one case to send."""


def run(plan: Plan) -> Report:
    report = Report()
    log = bytearray()
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), with_python=plan.with_python)
        trace = f"--trace-config=triton,file={folder}/trace.json"
        with _region() as key, conch(repository, *_OPTIONS, trace, log=log) as server:
            asyncio.run(_Run(plan, server, key, report).drive())
    text = log.decode("utf-8", "replace")
    report.tracebacks = [match[0] for match in _TRACEBACK.finditer(text)]
    return report


@contextmanager
def _region() -> Iterator[str]:
    """A shared memory object for the requests that name one."""
    name = REGION_KEY % os.getpid()
    path = Path("/dev/shm", name)
    path.write_bytes(bytes(REGION_BYTES))
    try:
        yield f"/{name}"
    finally:
        path.unlink()


class _Run:
    def __init__(self, plan: Plan, server: Server, region_key: str, report: Report) -> None:
        self._plan = plan
        self._server = server
        self._region_key = region_key
        self._report = report
        self._even = itertools.count(0, 2)
        self._odd = itertools.count(1, 2)
        self._is_over = asyncio.Event()

    async def drive(self) -> None:
        start = time.monotonic()
        canary = Canary(self._server.http_port, self._server.grpc_port, self._report)
        looking = asyncio.create_task(canary.run(self._is_over))
        try:
            if self._plan.only is not None:
                await self._send_one(self._plan.only)
            else:
                kinds = [self._send_http, self._send_grpc] * self._plan.connections
                await asyncio.gather(*(kind() for kind in kinds))
        finally:
            self._is_over.set()
            await looking
        self._report.late_kib = self._server.holdings().rss_kib
        self._report.seconds = time.monotonic() - start

    def _mutator(self, number: int) -> Mutator:
        return Mutator(Random(f"{self._plan.seed} {number}"))

    def _next(self, numbers: Iterator[int]) -> Iterator[int]:
        """Numbers of the cases to send: even ones over HTTP, odd ones over gRPC."""
        for number in numbers:
            if number >= self._plan.requests:
                return
            self._look_at_memory()
            self._report.requests += 1
            yield number

    def _look_at_memory(self) -> None:
        report, plan = self._report, self._plan
        is_warm = report.requests == int(plan.requests * plan.warm_up)
        is_step = report.requests % max(1, plan.requests // 20) == 0
        if is_warm or is_step:
            rss_kib = self._server.holdings().rss_kib
            report.rss_kib.append(rss_kib)
            if is_warm:
                report.early_kib = rss_kib

    async def _send_http(self) -> None:
        sender = HttpSender(self._server.http_port, self._report)
        for number in self._next(self._even):
            case = http_cases.make_case(self._mutator(number), self._region_key)
            await sender.send(case, number)
        await sender.close()

    async def _send_grpc(self) -> None:
        sender = GrpcSender(self._server.grpc_port, self._report)
        for number in self._next(self._odd):
            case = grpc_cases.make_case(self._mutator(number), self._region_key)
            await sender.send(case, number)
        await sender.close()

    async def _send_one(self, number: int) -> None:
        mutator = self._mutator(number)
        if number % 2:
            await GrpcSender(self._server.grpc_port, self._report).send(
                grpc_cases.make_case(mutator, self._region_key), number
            )
        else:
            await HttpSender(self._server.http_port, self._report).send(
                http_cases.make_case(mutator, self._region_key), number
            )
