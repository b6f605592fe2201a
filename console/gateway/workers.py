"""Which worker answers: the registry as of a second ago, and a turn for each that serves.

Lives on the event loop; Redis is asked in a thread, at most once a second, while requests go on
with the table they have. Only what the table would refuse waits for a newer one, so that who has
just seen a load succeed finds the model. Inference does not stop with Redis: while it is away the
last table stays, and one that comes back empty is given time for the workers to sign in again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from console.core.workers import get_client
from workers.messages import WorkerInfo

FRESH_S = 1.0
# For a fresher table than one of this age a request waits.
USABLE_S = 10.0
# For this long an empty registry is taken for one that has just been started.
SIGN_IN_S = 10.0
# A worker that did not answer is passed over for this long, if another can.
SHUNNED_S = 2.0
# Requests that nobody serves have the registry read no more often than this.
REFUSAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Upstream:
    worker_id: str
    host: str
    port: int


@dataclass(slots=True)
class Table:
    ready: list[Upstream] = field(default_factory=list)
    """Workers that take requests."""
    serving: dict[tuple[str, str], list[Upstream]] = field(default_factory=dict)
    """(model, version or "") -> workers that serve it."""
    known: dict[str, str] = field(default_factory=dict)
    """Model -> why nobody serves it, as far as a worker said so."""

    def candidates(self, model: str, version: str) -> list[Upstream]:
        return self.serving.get((model, version), []) if model else self.ready


class NoWorkerError(Exception):
    """Nobody can take the request; `status` and text are for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Workers:
    def __init__(self) -> None:
        self._table = Table()
        self._read_at = float("-inf")
        self._filled_at = float("-inf")
        self._error = ""
        self._refresh: asyncio.Task[None] | None = None
        self._turn = 0
        self._shunned: dict[str, float] = {}

    def forget(self) -> None:
        self._read_at = float("-inf")
        self._shunned.clear()

    def shun(self, upstream: Upstream) -> None:
        self._shunned[upstream.worker_id] = time.monotonic() + SHUNNED_S

    async def candidates(self, model: str, version: str) -> list[Upstream]:
        """In the order to try. Raises NoWorkerError."""
        table = await self._current()
        found = table.candidates(model, version)
        if not found and not self._error:
            table = await self._newer()
            found = table.candidates(model, version)
        if not found:
            raise NoWorkerError(503, self._error) if self._error else _nobody(table, model, version)
        self._turn += 1
        start = self._turn % len(found)
        turned = found[start:] + found[:start]
        now = time.monotonic()
        return sorted(turned, key=lambda up: self._shunned.get(up.worker_id, 0.0) > now)

    async def models(self) -> set[str]:
        """What is served by some worker. Raises NoWorkerError while the registry is away."""
        table = await self._current()
        if not table.ready and self._error:
            raise NoWorkerError(503, self._error)
        return {name for name, _ in table.serving}

    async def has_ready(self) -> bool:
        return bool((await self._current()).ready)

    async def _current(self) -> Table:
        age = time.monotonic() - self._read_at
        if age > FRESH_S:
            task = self._reading() or self._start_reading()
            if age > USABLE_S:
                await asyncio.shield(task)
        return self._table

    async def _newer(self) -> Table:
        """What the registry says after the call."""
        before = self._reading()
        if before is not None:
            await asyncio.shield(before)
        await asyncio.sleep(REFUSAL_S - (time.monotonic() - self._read_at))
        await asyncio.shield(self._reading() or self._start_reading())
        return self._table

    def _reading(self) -> asyncio.Task[None] | None:
        task = self._refresh
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return None
        return task

    def _start_reading(self) -> asyncio.Task[None]:
        self._refresh = asyncio.get_running_loop().create_task(self._read())
        return self._refresh

    async def _read(self) -> None:
        try:
            infos = await asyncio.to_thread(get_client().workers)
        except Exception as error:
            self._error = f"The console cannot read the worker registry: {error}"
        else:
            self._error = ""
            if infos or time.monotonic() - self._filled_at > SIGN_IN_S:
                self._table = build_table(infos)
            if infos:
                self._filled_at = time.monotonic()
        self._read_at = time.monotonic()


def only(worker_id: str, candidates: list[Upstream]) -> list[Upstream]:
    """The one that the caller asks for. Raises NoWorkerError when it is not among them."""
    found = [upstream for upstream in candidates if upstream.worker_id == worker_id]
    if not found:
        raise NoWorkerError(
            503,
            f"Worker {worker_id!r}, which the request asks for, does not serve it now: leave out "
            "the header X-Conch-Worker, and start a sequence again",
        )
    return found


def build_table(infos: list[WorkerInfo]) -> Table:
    table = Table()
    for info in infos:
        upstream = _upstream(info)
        takes = info.state == "ready" and upstream is not None
        if takes and upstream is not None:
            table.ready.append(upstream)
        for row in info.models:
            if takes and upstream is not None and row.state == "READY":
                for version in ("", row.version):
                    workers = table.serving.setdefault((row.name, version), [])
                    if upstream not in workers:
                        workers.append(upstream)
            reason = row.reason if row.state == "UNAVAILABLE" else ""
            table.known[row.name] = table.known.get(row.name) or reason
    return table


def _upstream(info: WorkerInfo) -> Upstream | None:
    address = urlsplit(info.http_url)
    if not address.hostname:
        return None
    return Upstream(info.worker_id, address.hostname, address.port or 80)


def _nobody(table: Table, model: str, version: str) -> NoWorkerError:
    if not model:
        return NoWorkerError(503, "No worker is connected and ready")
    what = f"model '{model}'" + (f" version {version}" if version else "")
    if not table.ready:
        return NoWorkerError(503, f"No worker is connected and ready, so nobody serves {what}")
    if model not in table.known:
        return NoWorkerError(404, f"Request for unknown model: no worker knows '{model}'")
    reason = table.known[model]
    because = f": {reason}" if reason else ""
    return NoWorkerError(503, f"No worker serves {what} now{because}")
