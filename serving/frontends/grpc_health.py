"""grpc.health.v1: the service name is ignored, as in Triton. Loop thread. Source: GRPC-017."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpc_health.v1 import health_pb2

from serving.errors import UnsupportedError
from serving.frontends.grpc_methods import Method, unary

DESCRIPTOR = health_pb2.DESCRIPTOR


def methods(is_ready: Callable[[], bool]) -> dict[str, Method]:
    """By path."""
    states = health_pb2.HealthCheckResponse.ServingStatus

    def check(request: Any) -> Any:
        status = states.SERVING if is_ready() else states.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=status)

    def watch(request: Any) -> Any:
        raise UnsupportedError("Watch is not supported, poll Check instead")

    kind = health_pb2.HealthCheckRequest
    return {
        "/grpc.health.v1.Health/Check": unary("Check", kind, check),
        "/grpc.health.v1.Health/Watch": unary("Watch", kind, watch),
    }
