"""A whole server with Python models of a test, asked in process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serving.options import ControlMode, ServerOptions
from serving.request import InferenceRequest, RequestedOutput
from serving.response import InferenceResponse
from serving.server import ModelServer
from tests.serving.backends.python.writing import model
from tests.serving.loading import tensor

FP32 = """
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
DECOUPLED_POLICY = "model_transaction_policy { decoupled: true }"
CALL = """
def call(name, value=1.0, outputs=("OUT",), **fields):
    array = value if isinstance(value, np.ndarray) else np.array([value], np.float32)
    return pb_utils.InferenceRequest(
        model_name=name, requested_output_names=list(outputs),
        inputs=[pb_utils.Tensor("IN", array)], **fields)
def value_of(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
def array_ok(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
def value_in(request):
    return pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
"""
ADD_ONE = "return [array_ok(value_in(r) + 1) for r in requests]"


def source_of(body: str, extra: str = "") -> str:
    """A model whose execute is `body`; `call`, `value_of`, `value_in` and `array_ok` help it."""
    return model(body, extra).replace("\nclass Triton", CALL + "\nclass Triton", 1)


def write_model(root: Path, name: str, source: str, config: str = "") -> None:
    """`config` is added to a config with one FP32 input and output."""
    (root / name / "1").mkdir(parents=True, exist_ok=True)
    text = f'name: "{name}" backend: "python" {FP32} {config}'
    (root / name / "config.pbtxt").write_text(text)
    (root / name / "1" / "model.py").write_text(source)


@contextlib.asynccontextmanager
async def served(
    root: Path, models: Mapping[str, str | tuple[str, str]], **options: Any
) -> AsyncIterator[ModelServer]:
    """`models`: name to source, or to source and what its config says in addition. All loaded."""
    for name, item in models.items():
        source, config = (item, "") if isinstance(item, str) else item
        write_model(root, name, source, config)
    options.setdefault("model_control_mode", ControlMode.EXPLICIT)
    options.setdefault("load_models", ("*",))
    options.setdefault("exit_timeout_secs", 5)
    server = ModelServer(ServerOptions((root,), **options))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def infer_request(name: str, value: float | np.ndarray = 1.0, **fields: Any) -> InferenceRequest:
    array = value if isinstance(value, np.ndarray) else np.array([value], np.float32)
    outputs = fields.pop("outputs", ())
    return InferenceRequest(
        name,
        inputs={"IN": tensor("IN", array)},
        requested_outputs=[RequestedOutput(item) for item in outputs],
        **fields,
    )


async def ask_server(
    server: ModelServer, name: str, value: float | np.ndarray = 1.0, **fields: Any
) -> np.ndarray:
    """Raises: ServingError."""
    response = await server.infer_async(infer_request(name, value, **fields))
    return output_of(response)


def output_of(response: InferenceResponse) -> np.ndarray:
    return next(item.array for item in response.outputs if item.name == "OUT")
