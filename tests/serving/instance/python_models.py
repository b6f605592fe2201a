"""Python models in real child processes, for tests: written to a folder, hosted, asked."""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.backends.base import ModelContext, Placement
from serving.clock import LoopClock
from serving.config.decode import InstanceKind, decode
from serving.config.protobuf import pb
from serving.instance.base import Batch
from serving.instance.limits import ProcessLimits
from serving.instance.process import ProcessHost
from serving.instance.restart import RestartPolicy
from serving.request import InferenceRequest, RequestedOutput
from serving.response import InferenceResponse
from serving.services import ModelServices
from tests.serving.loading import config_of, tensor

BACKEND = "serving.backends.python.backend:PythonBackend"

IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(t.name().replace("IN", "OUT"), t.as_numpy()) for t in r.inputs()]
            )
            for r in requests
        ]
"""

CONFIG = """
name: "m" backend: "python" max_batch_size: 0
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""


def context_for(
    directory: Path,
    source: str | None,
    config: str = CONFIG,
    *,
    filename: str = "model.py",
    others: dict[str, str] | None = None,
) -> ModelContext:
    """A model folder below `directory` with the version 1."""
    message = config_of(config)
    folder = directory / message.name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    files = dict(others or {})
    if source is not None:
        files[filename] = source
    for name, text in files.items():
        (folder / "1" / name).write_text(textwrap.dedent(text))
    complete = all(item.data_type for item in [*message.input, *message.output])
    spec = decode(message if complete else pb.ModelConfig(name=message.name))
    return ModelContext(spec, message, 1, folder)


def placed(context: ModelContext) -> Placement:
    return Placement(f"{context.spec.name}_0_0", InstanceKind.CPU, 0)


@contextlib.asynccontextmanager
async def hosted(
    context: ModelContext, backend: str = BACKEND, **options: Any
) -> AsyncIterator[ProcessHost]:
    """The started host; it is stopped at the end."""
    if "services" not in options:
        clock = options.pop("clock", None) or LoopClock(asyncio.get_running_loop())
        options["services"] = ModelServices(clock)
    restart = options.pop("restart", None) or RestartPolicy()
    options.setdefault("limits", ProcessLimits(initialize_s=20.0, restart=restart))
    host = ProcessHost(context, backend, placed(context), **options)
    await host.start()
    try:
        yield host
    finally:
        await host.stop()


def request(
    inputs: dict[str, np.ndarray] | np.ndarray | None = None,
    *,
    outputs: Sequence[str] = (),
    **fields: Any,
) -> InferenceRequest:
    if inputs is None:
        inputs = np.zeros(1, np.float32)
    if isinstance(inputs, np.ndarray):
        inputs = {"IN": inputs}
    return InferenceRequest(
        "m",
        1,
        inputs={name: tensor(name, array) for name, array in inputs.items()},
        requested_outputs=[RequestedOutput(name) for name in outputs],
        **fields,
    )


class Execution:
    """One batch on its way: its responses so far, and when it is done."""

    def __init__(self, requests: Sequence[InferenceRequest]) -> None:
        loop = asyncio.get_running_loop()
        self.batch = Batch(list(requests), len(requests))
        self.responses: dict[InferenceRequest, list[InferenceResponse]] = {
            item: [] for item in requests
        }
        self.done: asyncio.Future[None] = loop.create_future()
        self.answered: asyncio.Future[None] = loop.create_future()
        for item in requests:
            item.deliver = self._deliver

    def start(self, host: ProcessHost) -> Execution:
        host.execute(self.batch, lambda _: self.done.set_result(None))
        return self

    def _deliver(self, item: InferenceRequest, response: InferenceResponse) -> None:
        self.responses[item].append(response)
        if all(had and had[-1].is_final for had in self.responses.values()):
            self.answered.set_result(None)

    async def finish(self, timeout_s: float = 10.0) -> list[InferenceResponse]:
        """The last response of each request."""
        async with asyncio.timeout(timeout_s):
            await self.done
            await self.answered
        return [had[-1] for had in self.responses.values()]


async def ask(host: ProcessHost, *requests: InferenceRequest) -> list[InferenceResponse]:
    return await Execution(requests or [request()]).start(host).finish()


async def ask_one(host: ProcessHost, inputs: Any = None, **fields: Any) -> InferenceResponse:
    (response,) = await ask(host, request(inputs, **fields))
    return response


def output(response: InferenceResponse, name: str = "OUT") -> np.ndarray:
    assert response.error is None, response.error.message
    return next(item.array for item in response.outputs if item.name == name)


__all__ = [
    "BACKEND",
    "CONFIG",
    "IDENTITY",
    "Execution",
    "ask",
    "ask_one",
    "context_for",
    "hosted",
    "output",
    "pb",
    "placed",
    "request",
]
