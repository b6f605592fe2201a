"""What models import as `triton_python_backend_utils`: the public surface of NVIDIA's module.

Written from its documentation.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from serving.backends.python.pb_utils import process
from serving.backends.python.pb_utils.calls import ResponseIterator
from serving.backends.python.pb_utils.datatypes import (
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)
from serving.backends.python.pb_utils.errors import (
    TritonError,
    TritonModelException,
)
from serving.backends.python.pb_utils.inference import (
    FLAG_SEQUENCE_END,
    FLAG_SEQUENCE_START,
    RELEASE_ALL,
    RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
)
from serving.backends.python.pb_utils.logger import Logger, LogLevel
from serving.backends.python.pb_utils.metrics import Metric, MetricFamily
from serving.backends.python.pb_utils.model_config import ModelConfig
from serving.backends.python.pb_utils.responses import RESPONSE_COMPLETE_FINAL, InferenceResponse
from serving.backends.python.pb_utils.responses import ResponseSender as InferenceResponseSender
from serving.backends.python.pb_utils.tensor import Tensor
from serving.errors import ErrorCode, ServingError

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "LogLevel",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = FLAG_SEQUENCE_START
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = FLAG_SEQUENCE_END
TRITONSERVER_RESPONSE_COMPLETE_FINAL = RESPONSE_COMPLETE_FINAL
TRITONSERVER_REQUEST_RELEASE_ALL = RELEASE_ALL
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = RELEASE_RESCHEDULE


def __dir__() -> list[str]:
    return list(__all__)


class MemoryType(enum.IntEnum):
    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 2


TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU

_model_directory = ""


class PreferredMemory:
    """Where the outputs of a model's own request should be; CPU memory is all there is."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = MemoryType(preferred_memory_type)
        self.preferred_device_id = preferred_device_id


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input, or None where an optional one is absent."""
    for tensor in inference_request.inputs():
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    for tensor in inference_response.output_tensors():
        if tensor._name == name:
            return tensor
    return None


def _by_name(items: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    return next((item for item in items if item.get("name") == name), None)


def get_input_config_by_name(
    model_config: Mapping[str, Any], name: str
) -> Mapping[str, Any] | None:
    """The entry of `input` in a decoded model_config."""
    return _by_name(model_config.get("input", ()), name)


def get_output_config_by_name(
    model_config: Mapping[str, Any], name: str
) -> Mapping[str, Any] | None:
    return _by_name(model_config.get("output", ()), name)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def get_model_dir() -> str:
    """The folder of the model's version."""
    return _model_directory


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load another model, or load it anew; explicit mode only.

    `config`: JSON in the place of config.pbtxt; `files`: "file:<version>/<name>" to content.
    Raises: TritonModelException with the server's reason.
    """
    child = process.child_for_control()
    try:
        child.load_model(model_name, config, files or {})
    except ServingError as error:
        raise TritonModelException(f"Failed to load model: {error.message}") from error


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Raises: TritonModelException with the server's reason."""
    child = process.child_for_control()
    try:
        child.unload_model(model_name, unload_dependents)
    except ServingError as error:
        raise TritonModelException(f"Failed to unload model: {error.message}") from error


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """`model_version` is the number as text; empty stands for the highest that is served."""
    if model_version and not model_version.isdecimal():
        raise TritonModelException(
            f"Failed to check model readiness: '{model_version}' is no version of model "
            f"'{model_name}': it must be a positive number"
        )
    child = process.child_for_control()
    try:
        return child.is_model_ready(model_name, int(model_version or -1))
    except ServingError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return False
        raise TritonModelException(f"Failed to check model readiness: {error.message}") from error


def install(model_directory: str) -> None:
    """Make this module importable under the name that models use. Once in a process."""
    global _model_directory
    _model_directory = model_directory
    sys.modules["triton_python_backend_utils"] = sys.modules[__name__]
    sys.modules["c_python_backend_utils"] = sys.modules[__name__]
