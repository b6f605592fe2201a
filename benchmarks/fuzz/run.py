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

import grpc.aio

from benchmarks.certificates import write_certificate
from benchmarks.fuzz import grpc_cases, http_cases, platform_cases
from benchmarks.fuzz.canary import Canary
from benchmarks.fuzz.models import REGION_BYTES, REGION_KEY, write_repository
from benchmarks.fuzz.mutate import Mutator
from benchmarks.fuzz.report import Report
from benchmarks.fuzz.senders import ANSWER_TIMEOUT_S, GrpcSender, HttpSender, open_channel
from benchmarks.processes import Server, conch

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*.*\n?")
_OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--allow-client-shm=true",
    "--http-header-forward-pattern=triton.*",
    *platform_cases.OPTIONS,
)
_GUARDED = "trace,shared-memory,statistics,metadata:x-fuzz=key"
_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + bytes(160)
"""The begin of a TLS handshake, and nothing behind it."""
_TLS_EVERY = 16
"""One HTTP case of so many is junk for the TLS port, in a guarded run."""


@dataclass(frozen=True, slots=True)
class Plan:
    requests: int
    seed: int = 1
    connections: int = 8
    """Of each protocol."""
    warm_up: float = 0.25
    """The part of the requests after which memory must not grow any more."""
    with_python: bool = False
    is_guarded: bool = False
    """gRPC has TLS, and some kinds of calls need a header, which most requests bring."""
    only: int | None = None
    """The number of the one case to send."""


def run(plan: Plan) -> Report:
    report = Report()
    log = bytearray()
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder, "models"), with_python=plan.with_python)
        options = [*_OPTIONS, f"--trace-config=triton,file={folder}/trace.json"]
        root = _guard(Path(folder), options) if plan.is_guarded else None
        environment = platform_cases.ENVIRONMENT
        with (
            _region() as key,
            conch(repository, *options, log=log, environment=environment) as server,
        ):
            asyncio.run(_Run(plan, server, key, report, root).drive())
    text = log.decode("utf-8", "replace")
    report.tracebacks = [match[0] for match in _TRACEBACK.finditer(text)]
    return report


def _guard(folder: Path, options: list[str]) -> bytes:
    """Adds TLS and restrictions; returns what clients know the server by."""
    authority = write_certificate(folder, "authority")
    write_certificate(folder, "server", authority)
    options += [
        f"--http-restricted-api={_GUARDED}",
        f"--grpc-restricted-protocol={_GUARDED}",
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={folder}/server.crt",
        f"--grpc-server-key={folder}/server.key",
    ]
    return (folder / "authority.crt").read_bytes()


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
    def __init__(
        self, plan: Plan, server: Server, region_key: str, report: Report, root: bytes | None
    ) -> None:
        self._plan = plan
        self._server = server
        self._region_key = region_key
        self._report = report
        self._root = root
        self._even = itertools.count(0, 2)
        self._odd = itertools.count(1, 2)
        self._is_over = asyncio.Event()

    async def drive(self) -> None:
        start = time.monotonic()
        canary = Canary(self._server.http_port, self._channel(), self._report)
        looking = asyncio.create_task(canary.run(self._is_over))
        try:
            if self._plan.only is not None:
                only = iter([self._plan.only])
                await (self._send_grpc(only) if self._plan.only % 2 else self._send_http(only))
            else:
                http = [self._send_http(self._even) for _ in range(self._plan.connections)]
                grpc = [self._send_grpc(self._odd) for _ in range(self._plan.connections)]
                await asyncio.gather(*http, *grpc)
        finally:
            self._is_over.set()
            await looking
        self._report.late_kib = self._server.holdings().rss_kib
        self._report.seconds = time.monotonic() - start

    def _channel(self) -> grpc.aio.Channel:
        return open_channel(self._server.grpc_port, self._root)

    def _mutator(self, number: int) -> Mutator:
        return Mutator(Random(f"{self._plan.seed} {number}"))

    def _next(self, numbers: Iterator[int]) -> Iterator[int]:
        """Numbers of the cases to send: even ones over HTTP, odd ones over gRPC."""
        for number in numbers:
            if self._plan.only is None and number >= self._plan.requests:
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

    async def _send_http(self, numbers: Iterator[int]) -> None:
        senders = {
            door: HttpSender(port, self._report)
            for door, port in self._server.ports.items()
            if door != "gRPC"
        }
        for number in self._next(numbers):
            mutator = self._mutator(number)
            if self._root is not None and number // 2 % _TLS_EVERY == 0:
                await self._send_tls(mutator, number)
                continue
            case = http_cases.make_case(mutator, self._region_key, platform_cases.MAKERS)
            await senders[case.door].send(case, number)
        for sender in senders.values():
            await sender.close()

    async def _send_tls(self, mutator: Mutator, number: int) -> None:
        """Something like a handshake: the connection must end."""
        junk = mutator.data(_HELLO)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.grpc_port)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                writer.write(junk)
                writer.write_eof()
                await reader.read()
        except ConnectionError:
            pass
        except TimeoutError:
            self._report.find("TLS hang: no end of the connection", f"case {number}: {junk!r}")
        finally:
            self._report.answers["TLS junk"] += 1
            writer.close()

    async def _send_grpc(self, numbers: Iterator[int]) -> None:
        sender = GrpcSender(self._channel(), self._report)
        for number in self._next(numbers):
            case = grpc_cases.make_case(self._mutator(number), self._region_key)
            await sender.send(case, number)
        await sender.close()
