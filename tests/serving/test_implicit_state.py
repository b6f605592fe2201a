"""Implicit state of loaded models: every backend that has it, in a thread and in a process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.errors import ServingError
from serving.instance.process import ProcessHost
from serving.model import Model
from serving.response import InferenceResponse
from tests.serving.backends import onnx_files
from tests.serving.loading import infer, load, request_of
from tests.waiting import wait_until

FLOAT = onnx_files.FLOAT
STATE = """
state {
  input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [1]
  initial_state { name: "start" data_type: TYPE_FP32 dims: [1] %s }
}
"""
CONFIG = """
name: "accumulate" backend: "%s" max_batch_size: %d
input { name: "X" data_type: TYPE_FP32 dims: [1] }
output { name: "Y" data_type: TYPE_FP32 dims: [1] }
%s
sequence_batching { %s }
instance_group { kind: KIND_CPU count: 1 }
"""
PROCESS = 'parameters { key: "instance_isolation" value { string_value: "process" } }'
DECLARED = 'output { name: "SUM_OUT" data_type: TYPE_FP32 dims: [1] }'
PYTHON = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            total = x + pb_utils.get_input_tensor_by_name(request, "SUM_IN").as_numpy()
            tensors = [pb_utils.Tensor("Y", total), pb_utils.Tensor("SUM_OUT", total)]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""


def config(
    backend: str = "onnxruntime",
    *,
    batch: int = 4,
    more: str = "",
    strategy: str = "direct {}",
    initial: str = "zero_data: true",
) -> str:
    return CONFIG % (backend, batch, more, strategy + STATE % initial)


def write_onnx(directory: Path, shape: tuple[str | int, ...] = ("n", 1)) -> None:
    onnx_files.write(
        directory,
        [onnx_files.value("X", FLOAT, shape), onnx_files.value("SUM_IN", FLOAT, shape)],
        [onnx_files.value("Y", FLOAT, shape), onnx_files.value("SUM_OUT", FLOAT, shape)],
        [
            helper.make_node("Add", ["X", "SUM_IN"], ["Y"]),
            helper.make_node("Identity", ["Y"], ["SUM_OUT"]),
        ],
    )


def write_python(directory: Path) -> None:
    (directory / "1").mkdir()
    (directory / "1" / "model.py").write_text(PYTHON)


async def step(
    model: Model,
    value: float,
    sequence: int | str,
    *,
    start: bool = False,
    end: bool = False,
    outputs: tuple[str, ...] = (),
    rank: int = 2,
) -> InferenceResponse:
    array = np.full((1,) * rank, value, np.float32)
    request = request_of(
        {"X": array},
        model="accumulate",
        outputs=outputs,
        correlation_id=sequence,
        sequence_start=start,
        sequence_end=end,
    )
    return await infer(model, request)


async def values(model: Model, steps: list[float], sequence: int | str, **more: int) -> list[float]:
    """What one sequence of these inputs answers."""
    found = []
    for place, value in enumerate(steps):
        response = await step(
            model, value, sequence, start=place == 0, end=place == len(steps) - 1, **more
        )
        assert response.error is None, response.error
        assert [item.name for item in response.outputs] == ["Y"]
        found.append(response.outputs[0].array.item())
    return found


@pytest.mark.parametrize("host", ["thread", "process"])
@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 4 }"])
def test_sch_062_onnx_models_carry_their_state(tmp_path: Path, host: str, strategy: str):
    write_onnx(tmp_path)
    more = PROCESS if host == "process" else ""

    async def run() -> None:
        model = await load(config(more=more, strategy=strategy), tmp_path)
        assert await values(model, [1, 2, 3], 5) == [1, 3, 6]
        assert await values(model, [1, 2], 5) == [1, 3]
        await model.drain_and_close()

    asyncio.run(run())


@pytest.mark.parametrize("batch", [0, 4])
def test_sch_062_python_models_carry_their_state(tmp_path: Path, batch: int):
    write_python(tmp_path)

    async def run() -> None:
        model = await load(config("python", batch=batch), tmp_path)
        assert await values(model, [1, 2, 3], "text", rank=2 if batch else 1) == [1, 3, 6]
        await model.drain_and_close()

    asyncio.run(run())


def test_sch_062_the_identity_backend_keeps_a_state_as_it_is(tmp_path: Path):
    async def run() -> None:
        model = await load(config("identity", more=DECLARED), tmp_path)
        response = await step(model, 5, 1, start=True)
        found = {item.name: item.array.item() for item in response.outputs}
        assert found == {"Y": 5, "SUM_OUT": 0}
        await model.drain_and_close()

    asyncio.run(run())


def test_sch_062_sequences_that_share_batches_do_not_mix(tmp_path: Path):
    write_onnx(tmp_path)

    async def run() -> None:
        model = await load(config(), tmp_path)
        found = await asyncio.gather(
            *(values(model, [float(number)] * 20, number) for number in range(1, 9))
        )
        assert found == [
            [float(number * count) for count in range(1, 21)] for number in range(1, 9)
        ]
        await model.drain_and_close()

    asyncio.run(run())


def test_sch_063_a_sequence_begins_with_the_content_of_the_file(tmp_path: Path):
    write_onnx(tmp_path)
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "hundred").write_bytes(np.float32(100).tobytes())

    async def run() -> None:
        model = await load(config(initial='data_file: "hundred"'), tmp_path)
        assert await values(model, [1, 2], 5) == [101, 103]
        assert await values(model, [1, 2], 6) == [101, 103]
        await model.drain_and_close()

    asyncio.run(run())


def test_sch_063_a_missing_file_fails_the_load(tmp_path: Path):
    write_onnx(tmp_path)

    with pytest.raises(ServingError, match="check: initial state of 'SUM_IN'"):
        asyncio.run(load(config(initial='data_file: "none"'), tmp_path))


@pytest.mark.parametrize("backend", ["onnxruntime", "python"])
def test_sch_064_a_declared_state_output_can_be_read(tmp_path: Path, backend: str):
    (write_onnx if backend == "onnxruntime" else write_python)(tmp_path)

    async def run() -> None:
        model = await load(config(backend, more=DECLARED), tmp_path)
        first = await step(model, 2, 5, start=True)
        assert {item.name: item.array.item() for item in first.outputs} == {"Y": 2, "SUM_OUT": 2}
        second = await step(model, 3, 5, outputs=("SUM_OUT",))
        assert {item.name: item.array.item() for item in second.outputs} == {"SUM_OUT": 5}
        third = await step(model, 4, 5, outputs=("Y",), end=True)
        assert {item.name: item.array.item() for item in third.outputs} == {"Y": 9}
        await model.drain_and_close()

    asyncio.run(run())


def test_sch_064_a_state_output_that_is_not_declared_cannot_be_requested(tmp_path: Path):
    write_onnx(tmp_path)

    async def run() -> None:
        model = await load(config(), tmp_path)
        response = await step(model, 2, 5, start=True, outputs=("SUM_OUT",))
        assert response.error is not None
        assert "unexpected inference output 'SUM_OUT'" in response.error.message
        await model.drain_and_close()

    asyncio.run(run())


def test_a_caller_cannot_send_a_state(tmp_path: Path):
    write_onnx(tmp_path)

    async def run() -> None:
        model = await load(config(), tmp_path)
        one = np.ones((1, 1), np.float32)
        request = request_of({"X": one, "SUM_IN": one}, correlation_id=1, sequence_start=True)
        response = await infer(model, request)
        assert response.error is not None
        await model.drain_and_close()

    asyncio.run(run())


def test_a_scalar_state_of_an_onnx_model_has_one_element(tmp_path: Path):
    write_onnx(tmp_path, ())

    async def run() -> None:
        model = await load(config(batch=0), tmp_path)
        assert await values(model, [1, 2, 3], 5, rank=1) == [1, 3, 6]
        await model.drain_and_close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("SUM_IN", "OTHER_IN", "unexpected inference input 'OTHER_IN'"),
        ("SUM_OUT", "OTHER_OUT", "unexpected inference output 'OTHER_OUT'"),
        ("TYPE_FP32 dims: [1]\n  initial", "TYPE_INT32 dims: [1]\n  initial", "TYPE_FP32 in the"),
        ("dims: [1]\n  initial", "dims: [1, 2]\n  initial", "the config makes it [-1, 1, 2]"),
    ],
)
def test_a_state_that_the_model_file_does_not_have_fails_the_load(tmp_path, old, new, told):
    write_onnx(tmp_path)

    with pytest.raises(ServingError) as raised:
        asyncio.run(load(config().replace(old, new), tmp_path))
    assert told in raised.value.message


def test_text_goes_through_a_state_of_an_onnx_model(tmp_path: Path):
    shape = ("n", 1)
    text = TensorProto.STRING
    onnx_files.write(
        tmp_path,
        [onnx_files.value("X", text, shape), onnx_files.value("SUM_IN", text, shape)],
        [onnx_files.value("Y", text, shape), onnx_files.value("SUM_OUT", text, shape)],
        [
            helper.make_node("Identity", ["SUM_IN"], ["Y"]),
            helper.make_node("Identity", ["X"], ["SUM_OUT"]),
        ],
    )

    async def run() -> None:
        model = await load(config().replace("TYPE_FP32", "TYPE_STRING"), tmp_path)
        found = []
        for place, word in enumerate((b"one", b"two", b"three")):
            array = np.array([[word]], object)
            request = request_of({"X": array}, correlation_id=1, sequence_start=not place)
            response = await infer(model, request)
            assert response.error is None, response.error
            found.append(response.outputs[0].array.item())
        assert found == [b"", b"one", b"two"]
        await model.drain_and_close()

    asyncio.run(run())


@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 4 }"])
def test_a_state_outlives_the_process_of_the_instance(tmp_path: Path, strategy: str):
    write_onnx(tmp_path)

    async def run() -> None:
        model = await load(config(more=PROCESS, strategy=strategy), tmp_path)
        (host,) = model._pool.hosts
        assert isinstance(host, ProcessHost)
        first = await step(model, 2, 5, start=True)
        os.kill(host.pid, signal.SIGKILL)
        await wait_until(lambda: not host.is_ready)
        second = await step(model, 3, 5, end=True)
        assert [item.outputs[0].array.item() for item in (first, second)] == [2, 5]
        await model.drain_and_close()

    asyncio.run(run())
