"""The built-in identity backend."""

from __future__ import annotations

import time

import numpy as np
import pytest

from serving.errors import ModelLoadError
from tests.serving.loading import IDENTITY, load, outputs_of

PAIRS = """name: "pairs" backend: "identity"
input [{ name: "A" data_type: TYPE_STRING dims: [-1] },
       { name: "B" data_type: TYPE_INT64 dims: [2] optional: true }]
output [{ name: "OA" data_type: TYPE_STRING dims: [-1] },
        { name: "OB" data_type: TYPE_INT64 dims: [2] }]"""


async def test_outputs_are_the_inputs_in_order_of_the_config():
    model = await load(PAIRS)
    a, b = np.array([b"x", b""], dtype=np.object_), np.array([1, -2], np.int64)

    outputs = await outputs_of(model, {"B": b, "A": a})

    assert outputs["OA"].tolist() == [b"x", b""]
    assert outputs["OB"].tolist() == [1, -2]
    await model.drain_and_close()


async def test_an_optional_input_that_is_left_out_gives_no_output():
    model = await load(PAIRS)

    outputs = await outputs_of(model, {"A": np.array([b"x"], dtype=np.object_)})

    assert list(outputs) == ["OA"]
    await model.drain_and_close()


async def test_execute_delay_ms_makes_each_execution_last():
    delay = 'parameters { key: "execute_delay_ms" value { string_value: "20" } }'
    model = await load(IDENTITY + delay)
    start = time.monotonic()

    await outputs_of(model, {"IN": np.zeros((1, 1), np.float32)})

    assert time.monotonic() - start >= 0.02
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PAIRS.replace("TYPE_INT64 dims: [2] }]", "TYPE_INT32 dims: [2] }]"), "same data_type"),
        (
            IDENTITY + 'output { name: "OUT2" data_type: TYPE_FP32 dims: [1] }',
            "1 inputs and 2 outputs",
        ),
    ],
)
async def test_a_config_that_cannot_be_an_identity_is_refused(text, reason):
    with pytest.raises(ModelLoadError, match=reason):
        await load(text)
