"""A server with both doors inside the test: what reaches it is seen, and any error can be had."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from serving.errors import ErrorCode, ServingError
from serving.frontends import Frontends, start_frontends
from serving.model import Model
from serving.options import FrontendOptions, ServerOptions
from serving.request import InferenceRequest
from serving.server import ModelServer
from tests.serving.frontends.models import write_identities
from tests.serving.frontends.raw_http import RawClient


class WatchedServer(ModelServer):
    """A model named `error-<code>` has that error."""

    seen: list[InferenceRequest]

    def receiver(self, name: str, version: int = -1) -> Model:
        if name.startswith("error-"):
            error = ServingError(f"it is {name}")
            error.code = ErrorCode[name.removeprefix("error-")]
            raise error
        return super().receiver(name, version)

    def infer(self, request: InferenceRequest) -> None:
        self.seen.append(request)
        super().infer(request)


@dataclass
class Doors:
    server: WatchedServer
    frontends: Frontends
    http: RawClient
    channel: grpc.aio.Channel

    @property
    def stub(self) -> Any:
        return service_pb2_grpc.GRPCInferenceServiceStub(self.channel)


@asynccontextmanager
async def open_doors(
    root: Path, frontends: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Doors]:
    """Serves identity models out of `root`; on free ports, without metrics."""
    write_identities(root)
    server = WatchedServer(ServerOptions((root,), **options))
    server.seen = []
    wanted = {"http_port": 0, "grpc_port": 0, "allow_metrics": False} | (frontends or {})
    opened = await start_frontends(server, FrontendOptions(**wanted))
    await server.start()
    http = await RawClient.connect(opened.http_port)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{opened.grpc_port}") as channel:
        yield Doors(server, opened, http, channel)
    await http.close()
    await opened.stop()
    await server.stop()


def infer_message(model: str = "identity", **members: Any) -> Any:
    """INPUT0 = [[1, 2]]."""
    message = pb.ModelInferRequest(model_name=model, **members)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 2])
    message.raw_input_contents.append(b"\0\0\x80\x3f\0\0\0\x40")
    return message
