"""--grpc-restricted-protocol: calls of some kinds need a piece of metadata. Loop thread.

Source: spec GRPC-046, GRPC-A09.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from serving.restrictions import GRPC_PREFIX, Restriction, Restrictions

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]  # generic in the stubs alone
else:
    _Interceptor = grpc.aio.ServerInterceptor

_CATEGORIES = {
    "ServerLive": "health",
    "ServerReady": "health",
    "ModelReady": "health",
    "Check": "health",
    "Watch": "health",
    "ServerMetadata": "metadata",
    "ModelMetadata": "metadata",
    "ModelInfer": "inference",
    "ModelStreamInfer": "inference",
    "ModelConfig": "model-config",
    "ModelStatistics": "statistics",
    "RepositoryIndex": "model-repository",
    "RepositoryModelLoad": "model-repository",
    "RepositoryModelUnload": "model-repository",
    "SystemSharedMemoryStatus": "shared-memory",
    "SystemSharedMemoryRegister": "shared-memory",
    "SystemSharedMemoryUnregister": "shared-memory",
    "CudaSharedMemoryStatus": "shared-memory",
    "CudaSharedMemoryRegister": "shared-memory",
    "CudaSharedMemoryUnregister": "shared-memory",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}


class RestrictedCalls(_Interceptor):
    """Installed only where something is restricted: it costs every call a little."""

    def __init__(self, restrictions: Iterable[Restriction]) -> None:
        self._restrictions = Restrictions(restrictions, GRPC_PREFIX)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        method = details.method.rpartition("/")[2]
        given = dict(details.invocation_metadata or ())
        missing = self._restrictions.missing(_CATEGORIES.get(method, ""), given.get)
        if not missing:
            return await continuation(details)

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"This protocol is restricted, expecting header '{missing}'",
            )

        if method == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)
