"""The gRPC front end: grpc.aio around `GrpcService` and the standard health service. Loop thread.

Source: spec protocol_grpc.md.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2_grpc

from serving.frontends.grpc_parsing import TolerantRegistrar
from serving.frontends.grpc_service import GrpcService

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.server import ModelServer

_MAX_MESSAGE_BYTES = 2**31 - 1
_OPTIONS = [
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 7_200_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 300_000),
    ("grpc.http2.max_ping_strikes", 2),
]


class _ClientsFaults(logging.Filter):
    """Lowers what grpc reports with a traceback although only a client is to blame: it went away
    before its answer, or sent bytes that are no message."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[0] if record.exc_info else None
        if error is None or error.__name__ not in ("ExecuteBatchError", "DecodeError"):
            return True
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


_clients_faults = _ClientsFaults()


class GrpcServer:
    def __init__(self, server: ModelServer, memory: ClientMemory) -> None:
        self.port = 0
        logging.getLogger("grpc._cython.cygrpc").addFilter(_clients_faults)  # once, however often
        self._server = grpc.aio.server(options=_OPTIONS)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            GrpcService(server, memory), TolerantRegistrar(self._server)
        )
        health_pb2_grpc.add_HealthServicer_to_server(_Health(server), self._server)

    async def start(self, address: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken."""
        host = f"[{address}]" if ":" in address else address
        try:
            self.port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {host}:{port} for gRPC: {error}") from None
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """grpc.health.v1: the service name is ignored, as in Triton."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - name in the .proto
        states = health_pb2.HealthCheckResponse.ServingStatus
        is_ready = self._server.is_ready()
        return health_pb2.HealthCheckResponse(
            status=states.SERVING if is_ready else states.NOT_SERVING
        )

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - name in the .proto
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "Watch is not supported, poll Check instead"
        )
