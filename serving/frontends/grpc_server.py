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

from serving.errors import InvalidArgumentError
from serving.frontends.grpc_parsing import TolerantRegistrar, refuse_malformed
from serving.frontends.grpc_restricted import RestrictedCalls
from serving.frontends.grpc_service import GrpcService
from serving.options import GrpcOptions

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer

_MAX_MESSAGE_BYTES = 2**31 - 1


def _channel_options(options: GrpcOptions) -> list[tuple[str, int]]:
    found = [
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.so_reuseport", int(options.reuse_port)),
        ("grpc.keepalive_time_ms", options.keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", options.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", int(options.keepalive_permit_without_calls)),
        ("grpc.http2.max_pings_without_data", options.max_pings_without_data),
        (
            "grpc.http2.min_recv_ping_interval_without_data_ms",
            options.min_recv_ping_interval_ms,
        ),
        ("grpc.http2.max_ping_strikes", options.max_ping_strikes),
        ("grpc.default_compression_level", options.response_compression_level),
    ]
    if options.max_connection_age_s:
        found.append(("grpc.max_connection_age_ms", options.max_connection_age_s * 1000))
        if options.max_connection_age_grace_s is not None:
            grace_ms = options.max_connection_age_grace_s * 1000
            found.append(("grpc.max_connection_age_grace_ms", grace_ms))
    return found


def _credentials(options: GrpcOptions) -> grpc.ServerCredentials:
    """Raises OSError naming the file that cannot be read."""
    assert options.server_cert is not None
    assert options.server_key is not None
    root = None if options.root_cert is None else options.root_cert.read_bytes()
    pair = (options.server_key.read_bytes(), options.server_cert.read_bytes())
    return grpc.ssl_server_credentials([pair], root, options.use_ssl_mutual)


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
    def __init__(
        self, server: ModelServer, memory: ClientMemory, tracer: Tracer, options: GrpcOptions
    ) -> None:
        self.port = 0
        self._options = options
        logging.getLogger("grpc._cython.cygrpc").addFilter(_clients_faults)  # once, however often
        guards = [RestrictedCalls(options.restricted)] if options.restricted else []
        self._server = grpc.aio.server(interceptors=guards, options=_channel_options(options))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            GrpcService(server, memory, tracer, options.header_forward_pattern),
            TolerantRegistrar(self._server),
        )
        health_pb2_grpc.add_HealthServicer_to_server(
            _Health(server), TolerantRegistrar(self._server)
        )

    async def start(self, address: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken."""
        host = f"[{address}]" if ":" in address else address
        try:
            if self._options.use_ssl:
                credentials = _credentials(self._options)
                self.port = self._server.add_secure_port(f"{host}:{port}", credentials)
            else:
                self.port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"{host}:{port} for gRPC: {error}") from None
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """grpc.health.v1: the service name is ignored, as in Triton."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - name in the .proto
        await _refuse_malformed(request, context)
        states = health_pb2.HealthCheckResponse.ServingStatus
        is_ready = self._server.is_ready()
        return health_pb2.HealthCheckResponse(
            status=states.SERVING if is_ready else states.NOT_SERVING
        )

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - name in the .proto
        await _refuse_malformed(request, context)
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "Watch is not supported, poll Check instead"
        )


async def _refuse_malformed(request: object, context: Any) -> None:
    try:
        refuse_malformed(request)
    except InvalidArgumentError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
