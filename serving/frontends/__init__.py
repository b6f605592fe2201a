"""The doors of the core: KServe v2 over HTTP and gRPC, and the metrics port. Loop thread.

`start_frontends` opens what the options allow and returns once every port listens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving.client_memory import ClientMemory
from serving.frontends.http_routes import HttpRoutes
from serving.frontends.http_server import HttpLimits, HttpServer
from serving.frontends.malloc import tune_malloc
from serving.frontends.metrics_http import MetricsRoutes
from serving.options import FrontendOptions
from serving.tracing.tracer import Tracer

if TYPE_CHECKING:
    from serving.frontends.grpc_server import GrpcServer
    from serving.server import ModelServer


@dataclass(slots=True)
class Frontends:
    """What listens; a port is 0 where its door is closed."""

    http: HttpServer | None = None
    grpc: GrpcServer | None = None
    metrics: HttpServer | None = None
    tracer: Tracer = field(default_factory=Tracer)

    @property
    def http_port(self) -> int:
        return self.http.port if self.http is not None else 0

    @property
    def grpc_port(self) -> int:
        return self.grpc.port if self.grpc is not None else 0

    @property
    def metrics_port(self) -> int:
        return self.metrics.port if self.metrics is not None else 0

    async def stop(self, grace: float = 0.0) -> None:
        """Accept nothing new; answers in progress have `grace` seconds to go out."""
        doors = [door for door in (self.http, self.grpc, self.metrics) if door is not None]
        await asyncio.gather(*(door.stop(grace) for door in doors))
        await asyncio.to_thread(self.tracer.close)


async def start_frontends(server: ModelServer, options: FrontendOptions) -> Frontends:
    """Open the doors. Raises OSError naming the address that is taken; nothing stays open then."""
    tune_malloc()
    memory = ClientMemory(is_allowed=options.allow_client_shm)
    tracer = Tracer(options.trace)
    opened = Frontends(tracer=tracer)
    try:
        if options.allow_http:
            limits = HttpLimits(max_body_size=options.http_max_body_size)
            opened.http = HttpServer(HttpRoutes(server, options, memory, tracer), limits)
            await opened.http.start(options.http_address, options.http_port)
        if options.allow_metrics:
            opened.metrics = HttpServer(MetricsRoutes(server, options), HttpLimits(max_body_size=0))
            await opened.metrics.start(options.metrics_address, options.metrics_port)
        if options.allow_grpc:
            # grpc costs 0.1 s and threads of its own: only where it is wanted.
            from serving.frontends.grpc_server import GrpcServer

            opened.grpc = GrpcServer(server, memory, tracer, options.grpc)
            await opened.grpc.start(options.grpc_address, options.grpc_port)
    except BaseException:
        await opened.stop()
        raise
    return opened
