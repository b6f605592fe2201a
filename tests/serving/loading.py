"""Models for tests of the core: contexts out of config text, requests, and awaited answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from serving.backends.base import ModelContext
from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.config.decode import ModelSpec, decode
from serving.config.protobuf import pb
from serving.datatypes import BY_DTYPE, DataType
from serving.model import Model
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.response import InferenceResponse
from serving.services import ModelServices

IDENTITY = """
name: "identity" backend: "identity" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""


def config_of(text: str) -> pb.ModelConfig:
    return text_format.Parse(text, pb.ModelConfig())


def spec_of(text: str) -> ModelSpec:
    return decode(config_of(text))


def context_of(
    text: str,
    directory: Path = Path("/nonexistent"),
    *,
    version: int = 1,
    backend_config: Mapping[str, str] | None = None,
) -> ModelContext:
    config = config_of(text)
    return ModelContext(decode(config), config, version, directory, backend_config or {})


async def load(text: str, directory: Path = Path("/nonexistent"), **options: Any) -> Model:
    context = context_of(text, directory)
    backend = BackendRegistry().get(context.spec.backend)
    clock = LoopClock(asyncio.get_running_loop())
    return await Model.load(context, backend, ModelServices(clock, **options))


def tensor(name: str, array: np.ndarray, datatype: DataType | None = None) -> InputTensor:
    return InputTensor(name, datatype or BY_DTYPE[array.dtype], array.shape, array)


def request_of(
    inputs: Mapping[str, np.ndarray],
    *,
    model: str = "identity",
    outputs: tuple[str, ...] = (),
    **fields: Any,
) -> InferenceRequest:
    return InferenceRequest(
        model,
        inputs={name: tensor(name, array) for name, array in inputs.items()},
        requested_outputs=[RequestedOutput(name) for name in outputs],
        **fields,
    )


async def infer(model: Model, request: InferenceRequest) -> InferenceResponse:
    """The final response, an error's too."""
    future: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
    request.on_response = lambda response: (
        future.set_result(response) if response.is_final else None
    )
    model.infer(request)
    return await asyncio.wait_for(future, 10)


async def outputs_of(model: Model, inputs: Mapping[str, np.ndarray], **fields: Any) -> dict:
    response = await infer(model, request_of(inputs, **fields))
    if response.error is not None:
        raise response.error
    return {item.name: item.array for item in response.outputs}
