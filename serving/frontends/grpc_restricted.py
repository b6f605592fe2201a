"""--grpc-restricted-protocol: calls of some kinds need a piece of metadata. Loop thread.

Source: spec GRPC-046, GRPC-A09.
"""

from __future__ import annotations

from collections.abc import Iterable

from serving.frontends.grpc_head import CallHead
from serving.restrictions import GRPC_PREFIX, Restriction, Restrictions

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


class RestrictedCalls:
    """Made only where something is restricted: it costs every call a little."""

    def __init__(self, restrictions: Iterable[Restriction]) -> None:
        self._restrictions = Restrictions(restrictions, GRPC_PREFIX)

    def missing(self, method: str, head: CallHead) -> str:
        """The metadata that the call lacks; empty where it may go on."""
        return self._restrictions.missing(_CATEGORIES.get(method, ""), head.value)
