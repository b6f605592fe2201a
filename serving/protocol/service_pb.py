"""The messages of inference.GRPCInferenceService (`pb`), without the weight of a gRPC library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.config.protobuf import load_module

if TYPE_CHECKING:
    from tritonclient.grpc import service_pb2 as pb
else:
    pb = load_module("service_pb2")

__all__ = ["pb"]
