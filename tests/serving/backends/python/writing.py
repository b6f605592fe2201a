"""Writes the models of these tests: only the body of execute is theirs."""

from __future__ import annotations

from pathlib import Path

from serving.response import InferenceResponse
from tests.serving.instance.python_models import CONFIG, ask, context_for, hosted, request

DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }"


def model(body: str, extra: str = "") -> str:
    """A model whose execute is `body`; `ok()` makes a good response."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return f"""import threading
import numpy as np
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL

def ok(value=1.0):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.float32))])

class TritonPythonModel:
    def execute(self, requests):
{lines}
{extra}
"""


async def answers(directory: Path, body: str, count: int = 1) -> list[InferenceResponse]:
    async with hosted(context_for(directory, model(body))) as host:
        return await ask(host, *(request() for _ in range(count)))
