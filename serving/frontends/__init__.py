"""The doors of the core: KServe v2 over HTTP and gRPC, the metrics port, and those for platforms
that host the server. Loop thread.

`start_frontends` opens what the options allow and returns once every port listens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from serving.client_memory import ClientMemory
from serving.frontends.grpc_server import GrpcServer
from serving.frontends.http_limits import HttpLimits
from serving.frontends.http_routes import HttpRoutes
from serving.frontends.http_server import HttpServer
from serving.frontends.malloc import tune_malloc
from serving.frontends.metrics_http import MetricsRoutes
from serving.frontends.openai_http import OpenAiPort
from serving.frontends.sagemaker_http import SageMakerRoutes
from serving.frontends.vertex_http import VertexRoutes
from serving.options import FrontendOptions
from serving.repository.load_threads import LoadThreads
from serving.tracing.tracer import Tracer

if TYPE_CHECKING:
    from serving.server import ModelServer


@dataclass(slots=True)
class Frontends:
    """What listens; a port is 0 where its door is closed."""

    http: HttpServer | None = None
    grpc: GrpcServer | None = None
    metrics: HttpServer | None = None
    openai: HttpServer | None = None
    sagemaker: HttpServer | None = None
    vertex: HttpServer | None = None
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

    @property
    def openai_port(self) -> int:
        return self.openai.port if self.openai is not None else 0

    @property
    def sagemaker_port(self) -> int:
        return self.sagemaker.port if self.sagemaker is not None else 0

    @property
    def vertex_port(self) -> int:
        return self.vertex.port if self.vertex is not None else 0

    async def stop(self, grace: float = 0.0) -> None:
        """Accept nothing new; answers in progress have `grace` seconds to go out."""
        doors = (
            self.http,
            self.grpc,
            self.metrics,
            self.openai,
            self.sagemaker,
            self.vertex,
        )
        await asyncio.gather(*(door.stop(grace) for door in doors if door is not None))
        # Not the loop's own executor, which takes no jobs any more when the interpreter ends.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(LoadThreads("close"), self.tracer.close)


async def start_frontends(server: ModelServer, options: FrontendOptions) -> Frontends:
    """Open the doors. Raises OSError naming the address that is taken; nothing stays open then."""
    tune_malloc()
    memory = ClientMemory(is_allowed=options.allow_client_shm)
    tracer = Tracer(options.trace)
    opened = Frontends(tracer=tracer)
    routes = HttpRoutes(server, options, memory, tracer)
    limits = HttpLimits(max_body_size=options.http_max_body_size)
    try:
        if options.allow_http:
            opened.http = HttpServer(routes, limits)
            reuse = options.http_reuse_port
            await opened.http.start(options.http_address, options.http_port, reuse_port=reuse)
        if options.allow_metrics:
            opened.metrics = HttpServer(MetricsRoutes(server, options), HttpLimits(max_body_size=0))
            await opened.metrics.start(options.metrics_address, options.metrics_port)
        if options.allow_grpc:
            opened.grpc = GrpcServer(server, memory, tracer, options.grpc)
            await opened.grpc.start(options.grpc_address, options.grpc_port)
        if options.openai_port is not None:
            of_openai = HttpRoutes(server, replace(options, allow_openai=True), memory, tracer)
            door = OpenAiPort(server, of_openai, MetricsRoutes(server, options))
            opened.openai = HttpServer(door, limits)
            await opened.openai.start(options.http_address, options.openai_port)
        if options.sagemaker.is_allowed or options.vertex.is_allowed:
            # The platforms send no header for restricted APIs; a redirect of Vertex AI's may.
            unrestricted = replace(options, http_restricted=())
            plain = HttpRoutes(server, unrestricted, memory, tracer)
            await _open_platforms(server, options, opened, plain, routes)
    except BaseException:
        await opened.stop()
        raise
    return opened


async def _open_platforms(
    server: ModelServer,
    options: FrontendOptions,
    opened: Frontends,
    plain: HttpRoutes,
    restricted: HttpRoutes,
) -> None:
    limits = HttpLimits(max_body_size=options.http_max_body_size)
    if options.sagemaker.is_allowed:
        opened.sagemaker = HttpServer(SageMakerRoutes(server, options.sagemaker, plain), limits)
        await opened.sagemaker.start(options.sagemaker.address, options.sagemaker.port)
    if options.vertex.is_allowed:
        vertex = VertexRoutes(server, options.vertex, plain, restricted)
        opened.vertex = HttpServer(vertex, limits)
        await opened.vertex.start(options.vertex.address, options.vertex.port)
