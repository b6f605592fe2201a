"""The built-in identity backend."""

from __future__ import annotations

import time

import numpy as np
import pytest

from serving.custom_metrics import CustomMetrics, MetricKind
from serving.errors import ModelLoadError, ServingError
from serving.tracing.trace import Trace
from tests.serving.loading import IDENTITY, infer, load, outputs_of, request_of

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


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_smp_01_the_bytes_of_inputs_are_counted_until_the_model_goes(isolation):
    """As Triton's identity backend does; texts with the length before each."""
    metrics = CustomMetrics()
    text = f'parameters {{ key: "instance_isolation" value {{ string_value: "{isolation}" }} }}'
    model = await load(PAIRS + text, metrics=metrics)
    sent = {"A": np.array([b"xyz", b""], dtype=np.object_), "B": np.array([1, -2], np.int64)}

    for _ in range(2):
        await outputs_of(model, sent)
    page = metrics.render()
    await model.drain_and_close()

    size = 2 * (4 + 3 + 4 + 16)
    assert f'input_byte_size_counter{{model="pairs",version="1"}} {size}\n' in page
    assert metrics.render() == ""


async def test_a_counter_whose_name_is_taken_by_another_kind_fails_the_load():
    metrics = CustomMetrics()
    metrics.declare("another", "input_byte_size_counter", "", MetricKind.GAUGE)

    with pytest.raises(ServingError, match="exists already as a gauge"):
        await load(PAIRS, metrics=metrics)


async def test_smp_01_custom_tracing_adds_two_moments_to_a_trace():
    parameter = 'parameters { key: "enable_custom_tracing" value { string_value: "true" } }'
    model = await load(IDENTITY + parameter)
    request = request_of({"IN": np.zeros((1, 1), np.float32)})
    request.trace = trace = Trace(
        1, "identity", levels=(True, False), end=lambda done: None, next_number=lambda: 2
    )

    assert (await infer(model, request)).error is None
    names = [name for name, _ in trace.timestamps if name.startswith("CUSTOM")]
    assert names == ["CUSTOM_ACTIVITY_START", "CUSTOM_ACTIVITY_END"]
    await model.drain_and_close()
