"""The gRPC front end: services on our own HTTP/2 server. Loop thread.

Source: spec protocol_grpc.md.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from serving.frontends import grpc_health, grpc_service, grpc_wire
from serving.frontends.grpc_call import UnaryCall
from serving.frontends.grpc_head import CallHead, HeadReader, Refusal
from serving.frontends.grpc_methods import Method
from serving.frontends.grpc_reflection import Reflection
from serving.frontends.grpc_restricted import RestrictedCalls
from serving.frontends.grpc_stream_call import StreamCall
from serving.frontends.http2.limits import Http2Limits, KeepAliveLimits
from serving.frontends.http2.server import Http2Server
from serving.frontends.http2.stream import Stream
from serving.frontends.json_threads import JsonThreads
from serving.options import GrpcOptions
from serving.protocol.status import GrpcStatus

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer


class GrpcServer:
    def __init__(
        self, server: ModelServer, memory: ClientMemory, tracer: Tracer, options: GrpcOptions
    ) -> None:
        self.port = 0
        self._options = options
        methods = grpc_service.methods(server, memory, tracer, options.header_forward_pattern)
        methods |= grpc_health.methods(server.is_ready)
        described = (grpc_service.DESCRIPTOR, grpc_health.DESCRIPTOR)
        methods |= Reflection(described).methods()
        self._application = GrpcApplication(methods, options)
        self._http2: Http2Server | None = None

    async def start(self, address: str, port: int) -> None:
        """Listen. Raises OSError: the address is taken, or a file of TLS cannot be read."""
        tls = _tls(self._options) if self._options.use_ssl else None
        self._http2 = Http2Server(self._application, _limits(self._options), tls)
        await self._http2.start(address, port, reuse_port=self._options.reuse_port)
        self.port = self._http2.port

    async def stop(self, grace_s: float) -> None:
        if self._http2 is not None:
            await self._http2.stop(grace_s)


class GrpcApplication:
    """What HTTP/2 streams are opened in: finds the method of a call, or says why not."""

    def __init__(self, methods: dict[str, Method], options: GrpcOptions) -> None:
        self._methods = methods
        self._guard = RestrictedCalls(options.restricted) if options.restricted else None
        self._threads = JsonThreads()
        self.read_head = HeadReader(options.response_compression_level).read

    def open(self, stream: Stream, head: CallHead) -> UnaryCall | StreamCall | None:
        method = self._methods.get(head.path)
        if self._guard is not None or method is None or head.refusal is not None:
            refusal = head.refusal or self._refusal(head, method)
            if refusal is not None:
                _refuse(stream, refusal)
                return None
            assert method is not None
        if method.open_stream is not None:
            return StreamCall(stream, head, self._threads, method.open_stream)
        assert method.handle is not None
        return UnaryCall(stream, head, self._threads, method.handle)

    def _refusal(self, head: CallHead, method: Method | None) -> bytes | None:
        """The answer to a call that no method gets."""
        if method is None:
            text = f"Method not found! There is no {head.path[:200]}"
            return grpc_wire.trailers(GrpcStatus.UNIMPLEMENTED, text, is_alone=True)
        missing = "" if self._guard is None else self._guard.missing(method.name, head)
        if not missing:
            return None
        text = f"This protocol is restricted, expecting header '{missing}'"
        return grpc_wire.trailers(GrpcStatus.UNAVAILABLE, text, is_alone=True)


def _refuse(stream: Stream, refusal: Refusal) -> None:
    if isinstance(refusal, bytes):
        stream.end(refusal)
    else:
        stream.reset(refusal)


def _limits(options: GrpcOptions) -> Http2Limits:
    grace_s = options.max_connection_age_grace_s
    return Http2Limits(
        keepalive=KeepAliveLimits(
            time_s=options.keepalive_time_ms / 1000,
            timeout_s=options.keepalive_timeout_ms / 1000,
            permit_without_calls=options.keepalive_permit_without_calls,
            max_pings_without_data=options.max_pings_without_data,
            min_recv_ping_interval_s=options.min_recv_ping_interval_ms / 1000,
            max_ping_strikes=options.max_ping_strikes,
            max_connection_age_s=options.max_connection_age_s,
            max_connection_age_grace_s=None if grace_s is None else float(grace_s),
        )
    )


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise OSError(error.errno, f"{path} for gRPC's TLS: {error.strerror}") from error


def _tls(options: GrpcOptions) -> ssl.SSLContext:
    """Raises OSError naming the file that cannot be read, or holds no such thing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    certificate, key, root = options.server_cert, options.server_key, options.root_cert
    assert certificate is not None
    assert key is not None
    for path in (certificate, key, root):
        if path is not None:
            _check_readable(path)  # OpenSSL does not say which file is missing
    try:
        # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(certificate, key, password=lambda: b"")
        if root is not None:
            context.load_verify_locations(root)
    except ssl.SSLError as error:
        names = ", ".join(str(path) for path in (certificate, key, root) if path is not None)
        raise OSError(f"no usable PEM certificate and key for gRPC in {names}: {error}") from error
    if options.use_ssl_mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
