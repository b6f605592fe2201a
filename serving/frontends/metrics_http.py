"""The metrics port: GET /metrics in Prometheus text, through the same HTTP adapter. Loop thread.

Device and host figures are sampled at most once in an interval, whoever asks how often.
Source: spec HTTP-020, metrics.md 6.1.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving import devices, metrics
from serving.frontends.http_messages import (
    TEXT,
    Cancel,
    HttpRequest,
    HttpResponse,
    Reply,
    text_error,
)
from serving.options import FrontendOptions
from serving.process_memory import resident_bytes
from serving.stats import StatsSnapshot

if TYPE_CHECKING:
    from serving.instance.turns import Turns
    from serving.latencies import Histogram, Summaries
    from serving.model import Model
    from serving.repository.states import IndexEntry
    from serving.scheduling.sequence.lanes import SlotUsage
    from serving.server import ModelServer


class MetricsRoutes:
    """GET /metrics; every other path answers 200 with nothing, as Triton's does."""

    def __init__(self, server: ModelServer, options: FrontendOptions) -> None:
        self._server = server
        self._options = options
        self._host = _HostSampler()
        self._counts = _ServerCounts(server)
        self._gpus: Sequence[devices.GpuSample] = ()
        self._sampled_at = float("-inf")

    def handle(self, request: HttpRequest, reply: Reply) -> Cancel | None:
        if request.method != b"GET":
            reply(text_error(405, "Method Not Allowed"))
        elif request.path == b"/metrics":
            reply(HttpResponse(200, [self._page().encode()], metrics.CONTENT_TYPE.encode()))
        else:
            reply(HttpResponse(200, [], TEXT))
        return None

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        return text_error(413, "the metrics port takes no body")

    def _page(self) -> str:
        now = time.monotonic()
        options = self._options
        if (now - self._sampled_at) * 1000 >= options.metrics_interval_ms:
            self._sampled_at = now
            self._gpus = devices.sample_gpus() if options.allow_gpu_metrics else ()
            self._host.sample()
        models = [_Counters(model) for model in self._server.metrics_models()]
        host = self._host if options.allow_cpu_metrics else None
        cache, limiter = self._server.cache, self._server.limiter
        page = metrics.render(
            models,
            self._gpus,
            host,
            server=self._counts,
            cache=None if cache is None else cache.counters,
            resources=() if limiter is None else limiter.resources(),
            config=self._server.options.metrics_config,
        )
        return page + self._server.custom_metrics.render()


@dataclass(slots=True)
class _Counters:
    """A model, as `metrics` wants to see it."""

    _model: Model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def version(self) -> int:
        return self._model.version

    @property
    def namespace(self) -> str:
        return self._model.namespace

    @property
    def metric_tags(self) -> Mapping[str, str]:
        return self._model.spec.metric_tags

    @property
    def load_duration_s(self) -> float:
        return self._model.load_duration_s

    @property
    def queued_count(self) -> int:
        return self._model.queued_count

    @property
    def inflight_count(self) -> int:
        return self._model.inflight_count

    @property
    def instance_count(self) -> int:
        return self._model.instance_count

    @property
    def is_cached(self) -> bool:
        return self._model.is_cached

    @property
    def turns(self) -> Turns | None:
        return self._model.turns

    @property
    def slot_usage(self) -> SlotUsage | None:
        return self._model.slot_usage

    @property
    def gpu_uuid(self) -> str:
        groups = self._model.spec.instance_groups
        used = {index for group in groups for index in group.gpus}
        uuids = [gpu.uuid for gpu in devices.list_gpus() if gpu.index in used]
        return uuids[0] if len(used) == len(uuids) == 1 else ""

    @property
    def process_bytes(self) -> int | None:
        return self._model.process_bytes

    @property
    def first_response(self) -> Histogram | None:
        return self._model.stats.first_response

    @property
    def summaries(self) -> Summaries | None:
        return self._model.stats.summaries

    def snapshot(self) -> StatsSnapshot:
        return self._model.stats.snapshot()


class _ServerCounts:
    """The server's own process, and what became of versions of models since it opened its doors."""

    def __init__(self, server: ModelServer) -> None:
        self.state_changes: Counter[str] = Counter()
        server.add_state_listener(self._count)

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(os.getpid())

    def _count(self, entry: IndexEntry) -> None:
        if entry.state:
            self.state_changes[entry.state] += 1


class _HostSampler:
    """CPU use between two samples, and memory, from /proc."""

    def __init__(self) -> None:
        self.cpu_utilization = 0.0
        self.memory_total_bytes = 0
        self.memory_used_bytes = 0
        self._busy, self._total = _cpu_ticks()

    def sample(self) -> None:
        busy, total = _cpu_ticks()
        elapsed = total - self._total
        self.cpu_utilization = (busy - self._busy) / elapsed if elapsed > 0 else 0.0
        self._busy, self._total = busy, total
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        self.memory_total_bytes = sizes["MemTotal"]
        self.memory_used_bytes = sizes["MemTotal"] - sizes.get("MemAvailable", sizes["MemFree"])


def _cpu_ticks() -> tuple[int, int]:
    """Busy and all clock ticks of all cores since boot."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
