"""What the server and its models say of themselves on request. Pure; any thread.

Source: spec HTTP-003, HTTP-020, GRPC-003.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from serving import TRITON_COMPATIBLE_VERSION
from serving.config.decode import ModelSpec, TensorSpec

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


def of_server(server_id: str) -> dict[str, Any]:
    return {
        "name": server_id,
        "version": TRITON_COMPATIBLE_VERSION,
        "extensions": list(EXTENSIONS),
    }


def of_model(spec: ModelSpec, versions: Iterable[int]) -> dict[str, Any]:
    def described(tensors: Iterable[TensorSpec]) -> list[dict[str, Any]]:
        return [
            {
                "name": tensor.name,
                "datatype": tensor.datatype.name,
                "shape": list(spec.metadata_shape(tensor)),
            }
            for tensor in tensors
        ]

    return {
        "name": spec.name,
        "versions": [str(item) for item in versions],
        "platform": spec.platform or spec.backend,
        "inputs": described(spec.inputs.values()),
        "outputs": described(spec.outputs.values()),
    }
