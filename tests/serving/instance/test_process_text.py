"""Text that no message can carry, from a model or a client, costs one answer and no process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError
from serving.instance.shared_tensors import INLINE_LIMIT_BYTES
from tests.serving.instance.python_models import (
    IDENTITY,
    ask_one,
    context_for,
    hosted,
    output,
)

BIG = np.arange(INLINE_LIMIT_BYTES, dtype=np.float32)

RAISING = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("not text: \\ud800")
"""

ANSWERING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse({arguments}) for _ in requests]
"""

LOADING = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("not text: \\ud800")

    def execute(self, requests):
        pass
"""


@pytest.mark.parametrize(
    "model",
    [
        RAISING,
        ANSWERING.format(arguments='error=pb_utils.TritonError("not text: \\ud800")'),
        ANSWERING.format(arguments='[], parameters={"a": "not text: \\ud800"}'),
    ],
    ids=["raised", "returned", "parameter"],
)
async def test_a_model_may_say_what_is_no_text(tmp_path: Path, model: str):
    async with hosted(context_for(tmp_path, model)) as host:
        before = host.pid
        answers = [await ask_one(host) for _ in range(2)]
        assert host.pid == before

    assert [r"\ud800" in str(answer.error) for answer in answers] == [True, True]


async def test_a_model_that_fails_to_load_may_say_what_is_no_text(tmp_path: Path):
    with pytest.raises(ServingError, match=r"not text: \\ud800"):
        async with hosted(context_for(tmp_path, LOADING)):
            pass


async def test_a_request_that_fits_no_message_leaves_the_shared_segments_in_step(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        before = host.pid
        refused = await ask_one(host, BIG, parameters={"a": "\ud800"})
        served = [output(await ask_one(host, BIG + index)) for index in range(3)]
        assert host.pid == before

    assert refused.error is not None
    assert [array[0] for array in served] == [0, 1, 2]
