"""Iterative sequences of real Python models, in their processes. SCH-066."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError
from serving.response import InferenceResponse
from serving.server import ModelServer
from tests.serving.backends.python.serving_models import (
    DECOUPLED_POLICY,
    ask_server,
    infer_request,
    output_of,
    served,
    source_of,
)

AGAIN = "pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"
COUNT_DOWN = source_of(
    f"""
answers = []
for request in requests:
    key = request.correlation_id()
    if request.flags() & 1:
        LEFT[key] = value_in(request).reshape(-1)[0]
    LEFT[key] -= 1
    again = LEFT[key] > 0
    if again:
        request.set_release_flags({AGAIN})
    answers.append(None if again else array_ok(np.full_like(value_in(request), key)))
return answers
""",
    "LEFT = {}",
)
"""Executes each request as many times as its value says, then answers with its sequence id."""
DOUBLE = source_of(
    f"""
for request in requests:
    sender = request.get_response_sender()
    state = pb_utils.get_input_tensor_by_name(request, "S_IN").as_numpy()
    value = value_in(request) if request.flags() & 1 else state
    tensors = [pb_utils.Tensor("OUT", value), pb_utils.Tensor("S_OUT", value * 2)]
    sender.send(pb_utils.InferenceResponse(tensors))
    if value.reshape(-1)[0] < 16:
        request.set_release_flags({AGAIN})
    else:
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)
"""Keeps nothing itself: its state says what comes next."""
STATE = 'state { input_name: "S_IN" output_name: "S_OUT" data_type: TYPE_FP32 dims: [-1] }'


def iterative(strategy: str = "", more: str = "") -> str:
    return (
        "max_batch_size: 4 instance_group { kind: KIND_CPU } "
        f"sequence_batching {{ iterative_sequence: true {strategy} }} {more}"
    )


def one(value: float) -> np.ndarray:
    return np.array([[value]], np.float32)


async def responses_of(server: ModelServer, name: str, value: float) -> list[InferenceResponse]:
    """All of a decoupled request."""
    loop = asyncio.get_running_loop()
    found: list[InferenceResponse] = []
    over: asyncio.Future[None] = loop.create_future()

    def on_response(response: InferenceResponse) -> None:
        found.append(response)
        if response.is_final:
            over.set_result(None)

    request = infer_request(name, one(value))
    request.on_response = on_response
    server.infer(request)
    await asyncio.wait_for(over, 10)
    return found


@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 4 }"])
async def test_a_request_is_executed_until_the_model_answers(tmp_path: Path, strategy: str):
    async with served(tmp_path, {"m": (COUNT_DOWN, iterative(strategy))}) as server:
        assert (await ask_server(server, "m", one(5))).item() == 1
        stats = server.model("m").stats.snapshot()

        assert (stats.execution_count, stats.success.count) == (5, 1)


async def test_requests_of_different_length_run_side_by_side(tmp_path: Path):
    strategy = "oldest { max_candidate_sequences: 4 }"
    async with served(tmp_path, {"m": (COUNT_DOWN, iterative(strategy))}) as server:
        found = await asyncio.gather(*(ask_server(server, "m", one(n)) for n in range(1, 13)))

        assert sorted(item.item() for item in found) == list(range(1, 13))
        assert server.model("m").queued_count == server.model("m").inflight_count == 0


async def test_the_state_goes_from_one_execution_to_the_next(tmp_path: Path):
    config = iterative(STATE, DECOUPLED_POLICY)
    async with served(tmp_path, {"m": (DOUBLE, config)}) as server:
        found = await responses_of(server, "m", 1)

        assert [output_of(item).item() for item in found[:-1]] == [1, 2, 4, 8, 16]
        assert all([output.name for output in item.outputs] == ["OUT"] for item in found[:-1])


@pytest.mark.parametrize("config", ["", "max_batch_size: 4 dynamic_batching {}"])
async def test_other_schedulers_refuse_to_execute_again(tmp_path: Path, config: str):
    always = source_of(
        f"[r.set_release_flags({AGAIN}) for r in requests]\nreturn [None] * len(requests)"
    )
    async with served(tmp_path, {"m": (always, config)}) as server:
        value = one(1) if config else one(1)[0]
        with pytest.raises(ServingError, match="asked to reschedule a request"):
            await ask_server(server, "m", value)
        assert server.model("m").inflight_count == 0
