"""Many sequences with implicit state at once, some cancelled: each answer is that of a model that
is alone with its sequence, every request gets one final answer, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from serving.errors import CancelledError
from serving.model import Model
from serving.response import InferenceResponse
from tests.serving.backends import onnx_files
from tests.serving.loading import load, request_of

FLOAT = onnx_files.FLOAT
CLIENTS, SEQUENCES, LONGEST = 24, 8, 12
CONFIG = """
name: "history" backend: "onnxruntime" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [1] }
output { name: "Y" data_type: TYPE_FP32 dims: [1] }
sequence_batching {
  %s
  max_sequence_idle_microseconds: 60000000
  state { input_name: "SEEN" output_name: "SEEN_NEXT" data_type: TYPE_FP32 dims: [%s]
    initial_state { name: "one" data_type: TYPE_FP32 dims: [1] zero_data: true } }
}
instance_group { kind: KIND_CPU count: 2 }
%s
"""
PROCESS = 'parameters { key: "instance_isolation" value { string_value: "process" } }'


def write_history(directory: Path) -> None:
    """Y is the sum of all X of the sequence; the state grows by each."""
    onnx_files.write(
        directory,
        [onnx_files.value("X", FLOAT, ("n", 1)), onnx_files.value("SEEN", FLOAT, ("n", "k"))],
        [onnx_files.value("Y", FLOAT, ("n", 1)), onnx_files.value("SEEN_NEXT", FLOAT, ("n", "j"))],
        [
            helper.make_node("Concat", ["SEEN", "X"], ["SEEN_NEXT"], axis=1),
            helper.make_node("ReduceSum", ["SEEN_NEXT", "axis"], ["Y"], keepdims=1),
        ],
        initializers=[numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )


def write_sum(directory: Path) -> None:
    """Y is the sum of all X of the sequence, and so is the state."""
    shape = ("n", 1)
    onnx_files.write(
        directory,
        [onnx_files.value("X", FLOAT, shape), onnx_files.value("SEEN", FLOAT, shape)],
        [onnx_files.value("Y", FLOAT, shape), onnx_files.value("SEEN_NEXT", FLOAT, shape)],
        [
            helper.make_node("Add", ["X", "SEEN"], ["Y"]),
            helper.make_node("Identity", ["Y"], ["SEEN_NEXT"]),
        ],
    )


class Client:
    """Runs sequences of random length one after the other, under one id."""

    def __init__(self, model: Model, number: int) -> None:
        self._model = model
        self._id = number + 1
        self._random = random.Random(number)
        self.finals = self.sent = self.cancelled = 0

    async def run(self) -> None:
        for _ in range(SEQUENCES):
            length = self._random.randint(1, LONGEST)
            total = 0.0
            for place in range(length):
                value = float(self._random.randint(-9, 9))
                total += value
                answer = await self._step(value, place == 0, place == length - 1)
                if answer.error is None:
                    assert answer.outputs[0].array.item() == total
                    continue
                assert isinstance(answer.error, CancelledError), answer.error
                self.cancelled += 1
                break  # what the model had seen is gone: begin again

    async def _step(self, value: float, start: bool, end: bool) -> InferenceResponse:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[InferenceResponse] = loop.create_future()

        def on_response(response: InferenceResponse) -> None:
            assert response.is_final
            self.finals += 1
            answered.set_result(response)

        request = request_of(
            {"X": np.array([[value]], np.float32)},
            model="history",
            correlation_id=self._id,
            sequence_start=start,
            sequence_end=end,
        )
        request.on_response = on_response
        self.sent += 1
        self._model.infer(request)
        if self._random.random() < 0.05:
            request.cancel()
        return await asyncio.wait_for(answered, 30)


@pytest.mark.parametrize("host", ["", PROCESS], ids=["thread", "process"])
@pytest.mark.parametrize(
    "strategy",
    ["direct {}", "oldest { max_candidate_sequences: 8 max_queue_delay_microseconds: 200 }"],
    ids=["direct", "oldest"],
)
@pytest.mark.parametrize("dims", ["1", "-1"], ids=["sum", "history"])
async def test_every_sequence_is_as_if_it_were_alone(
    tmp_path: Path, dims: str, strategy: str, host: str
) -> None:
    (write_sum if dims == "1" else write_history)(tmp_path)
    model = await load(CONFIG % (strategy, dims, host), tmp_path)
    clients = [Client(model, number) for number in range(CLIENTS)]

    await asyncio.gather(*(client.run() for client in clients))

    assert [client.finals for client in clients] == [client.sent for client in clients]
    assert sum(client.sent for client in clients) > 300
    assert sum(client.cancelled for client in clients)
    assert (model.queued_count, model.inflight_count) == (0, 0)
    await asyncio.wait_for(model.drain_and_close(), 10)
