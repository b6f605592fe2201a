"""Warm-up of sequence models: the batcher is passed by, so samples bring what it would add."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving import warmup
from serving.config.findings import errors_of
from serving.instance.base import Batch
from serving.request import InferenceRequest
from serving.request_checks import RequestChecks
from serving.response import InferenceResponse
from tests.serving.config.rules import findings_of
from tests.serving.loading import context_of

CONFIG = """
name: "m" backend: "identity" max_batch_size: %d
input { name: "IN" data_type: TYPE_INT32 dims: [2] }
output { name: "OUT" data_type: TYPE_INT32 dims: [2] }
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
  control_input { name: "END" control {
    kind: CONTROL_SEQUENCE_END bool_false_true: [false, true] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: %s } }
  state { input_name: "S_IN" output_name: "S_OUT" data_type: TYPE_INT32 dims: [-1, 3] }
}
model_warmup { name: "w" batch_size: %d
  inputs { key: "IN" value { data_type: TYPE_INT32 dims: [2] zero_data: true } } %s }
"""


def listed(name: str, kind: str, dims: str, data: str = "zero_data: true") -> str:
    return f'inputs {{ key: "{name}" value {{ data_type: TYPE_{kind} dims: {dims} {data} }} }}'


class Recording:
    """An instance that keeps what it was given."""

    name = "m_0"

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []

    def execute(self, batch: Batch, done: object) -> None:
        self.requests += batch.requests
        done(batch)  # type: ignore[operator]
        for request in batch.requests:
            assert request.deliver is not None
            request.deliver(request, InferenceResponse("m", 1))


async def given(
    tmp_path: Path, sample: str = "", *, batch: int = 4, rows: int = 1, id_type: str = "TYPE_UINT64"
) -> dict[str, np.ndarray]:
    """What the instance gets with the last request, by name."""
    context = context_of(CONFIG % (batch, id_type, rows, sample), tmp_path)
    host = Recording()
    samples = warmup.prepare(context)
    await warmup.run(host, samples, context, RequestChecks(context.spec))  # type: ignore[arg-type]
    return {name: tensor.array for name, tensor in host.requests[-1].inputs.items()}


async def test_sch_133_control_tensors_are_listed_like_inputs(tmp_path):
    sample = listed("START", "FP32", "[1]") + listed("ID", "UINT64", "[1]", "random_data: true")

    arrays = await given(tmp_path, sample, rows=2)

    assert arrays["START"].tolist() == [[0]]
    assert arrays["ID"].shape == (1, 1)
    assert arrays["IN"].shape == (1, 2)


async def test_sch_133_what_is_not_listed_is_as_at_the_start_of_a_sequence(tmp_path):
    arrays = await given(tmp_path, rows=2)

    assert {name: arrays[name].tolist() for name in ("START", "END", "READY", "ID")} == {
        "START": [[1.0]],
        "END": [[False]],
        "READY": [[1]],
        "ID": [[1]],
    }
    assert arrays["S_IN"].tolist() == [[[0, 0, 0]]]


async def test_sch_133_a_model_without_batching_gets_one_element(tmp_path):
    arrays = await given(tmp_path, batch=0, id_type="TYPE_STRING")

    assert arrays["START"].tolist() == [1.0]
    assert arrays["ID"].tolist() == [b"1"]
    assert arrays["S_IN"].shape == (1, 3)


async def test_sch_133_a_state_may_be_listed(tmp_path):
    arrays = await given(tmp_path, listed("S_IN", "INT32", "[7, 3]"))

    assert arrays["S_IN"].shape == (1, 7, 3)


@pytest.mark.parametrize("name", ["START", "S_IN"])
def test_the_check_of_a_config_knows_that_they_may_be_listed(name):
    text = CONFIG % (4, "TYPE_UINT64", 1, listed(name, "INT32", "[1]"))

    assert errors_of(findings_of(text)) == []


def test_the_check_of_a_config_still_finds_what_no_model_has():
    text = CONFIG % (4, "TYPE_UINT64", 1, listed("NOPE", "INT32", "[1]"))

    assert ["no such input" in item.message for item in errors_of(findings_of(text))] == [True]
