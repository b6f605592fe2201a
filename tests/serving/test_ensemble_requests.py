"""Requests to ensembles in a whole server while their parts are replaced, unloaded, or stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import ErrorCode, NotFoundError, ServingError, UnavailableError
from serving.options import ControlMode, ServerOptions
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.response import InferenceResponse
from serving.server import ModelServer
from tests.serving.model_files import identity_request, write_ensemble, write_identity
from tests.waiting import wait_until

SWAP = """\
backend: "identity"
input { name: "IN0" data_type: TYPE_FP32 dims: [1] }
input { name: "IN1" data_type: TYPE_FP32 dims: [1] }
output { name: "%s" data_type: TYPE_FP32 dims: [1] }
output { name: "%s" data_type: TYPE_FP32 dims: [1] }
parameters { key: "execute_delay_ms" value { string_value: "1" } }
"""
TWICE = """\
platform: "ensemble"
input [{ name: "A" data_type: TYPE_FP32 dims: [1] }, { name: "B" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "C" data_type: TYPE_FP32 dims: [1] }, { name: "D" data_type: TYPE_FP32 dims: [1] }]
ensemble_scheduling { step [
  { model_name: "swap" model_version: -1
    input_map { key: "IN0" value: "A" } input_map { key: "IN1" value: "B" }
    output_map { key: "OUT0" value: "m" } output_map { key: "OUT1" value: "n" } },
  { model_name: "swap" model_version: -1
    input_map { key: "IN0" value: "m" } input_map { key: "IN1" value: "n" }
    output_map { key: "OUT0" value: "C" } output_map { key: "OUT1" value: "D" } }
] }
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ModelServer]:
    made = ModelServer(
        ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT, exit_timeout_secs=10)
    )
    await made.start()
    yield made
    await made.stop()


async def reason_of(server: ModelServer, name: str) -> str:
    await server.settled()
    return "; ".join(row.reason for row in server.repository_index() if row.name == name)


def swap_request(number: float) -> InferenceRequest:
    arrays = {"A": np.array([number], np.float32), "B": np.array([-number], np.float32)}
    fp32 = BY_NAME["FP32"]
    inputs = {key: InputTensor(key, fp32, item.shape, item) for key, item in arrays.items()}
    return InferenceRequest("twice", inputs=inputs)


def write_swap(root: Path, outputs: tuple[str, str]) -> None:
    (root / "swap" / "1").mkdir(parents=True, exist_ok=True)
    (root / "swap" / "config.pbtxt").write_text(SWAP % outputs)


async def test_no_request_fails_or_mixes_versions_while_its_part_is_replaced(server, tmp_path):
    """Two versions of a part, of which one swaps its tensors: two steps of one version give what
    they got, two steps of different versions would swap it.
    """
    orders = [("OUT0", "OUT1"), ("OUT1", "OUT0")]
    write_swap(tmp_path, orders[0])
    (tmp_path / "twice" / "1").mkdir(parents=True)
    (tmp_path / "twice" / "config.pbtxt").write_text(TWICE)
    await server.load_model("twice")
    is_over = False
    answers: list[tuple[float, float, float]] = []

    async def client(first: int) -> None:
        number = first
        while not is_over:
            number += 10
            response = await server.infer_async(swap_request(number))
            got = {item.name: float(item.array[0]) for item in response.outputs}
            answers.append((number, got["C"], got["D"]))

    clients = [asyncio.create_task(client(first)) for first in range(1, 7)]
    for turn in range(10):
        write_swap(tmp_path, orders[(turn + 1) % 2])
        await server.load_model("swap")
        await asyncio.sleep(0.05)
    is_over = True
    await asyncio.gather(*clients)
    await server.settled()

    assert len(answers) > 50
    assert all((one, two) == (number, -number) for number, one, two in answers)
    assert server.model("swap").leases.count == 0


async def test_running_request_outlives_the_unload_of_its_parts(server, tmp_path):
    write_identity(tmp_path, "a", delay_ms=200)
    write_identity(tmp_path, "b")
    write_ensemble(tmp_path, "inner", "b")
    write_ensemble(tmp_path, "e", "a", "inner")
    await server.load_model("e")
    running = asyncio.create_task(server.infer_async(identity_request("e", value=3)))
    await wait_until(lambda: server.model("a").inflight_count == 1)

    await server.unload_model("b")

    with pytest.raises(NotFoundError):
        server.model("e")
    assert (await running).outputs[0].array.tolist() == [[3.0] * 4]
    assert await reason_of(server, "b") == "unloaded"


async def test_running_request_outlives_the_stop_of_the_server(tmp_path):
    server = ModelServer(ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT))
    await server.start()
    write_identity(tmp_path, "a", delay_ms=200)
    write_identity(tmp_path, "b")
    write_ensemble(tmp_path, "inner", "b")
    write_ensemble(tmp_path, "e", "a", "inner")
    await server.load_model("e")
    running = asyncio.create_task(server.infer_async(identity_request("e", value=3)))
    await wait_until(lambda: server.model("a").inflight_count == 1)

    assert await server.stop()

    assert (await running).outputs[0].array.tolist() == [[3.0] * 4]


async def test_drain_timeout_ends_requests_that_hold_a_replaced_part(tmp_path):
    server = ModelServer(
        ServerOptions(
            (tmp_path,), model_control_mode=ControlMode.EXPLICIT, model_drain_timeout_secs=1
        )
    )
    await server.start()
    write_identity(tmp_path, "a", delay_ms=2500)
    write_identity(tmp_path, "b")
    write_ensemble(tmp_path, "e", "a", "b")
    await server.load_model("e")
    running = asyncio.create_task(server.infer_async(identity_request("e")))
    await wait_until(lambda: server.model("a").inflight_count == 1)

    await server.unload_model("b")

    with pytest.raises(UnavailableError, match="drain timeout of 1 s"):
        await running
    await server.stop()


async def test_cancellation_goes_through_the_graph_into_the_queues(server, tmp_path):
    write_identity(tmp_path, "a", delay_ms=100)
    write_ensemble(tmp_path, "inner", "a")
    write_ensemble(tmp_path, "e", "inner")
    await server.load_model("e")
    first, second = identity_request("e"), identity_request("e")
    answers: list[InferenceResponse] = []
    second.on_response = answers.append
    running = asyncio.create_task(server.infer_async(first))
    await wait_until(lambda: server.model("a").inflight_count == 1)
    server.infer(second)
    assert server.model("a").queued_count == 1

    second.cancel()

    assert answers[0].error.code is ErrorCode.CANCELLED
    assert (await running).error is None
    assert server.model("a").stats.snapshot().success.count == 1


async def test_sch_094_labels_are_inherited_unless_the_ensemble_has_its_own(server, tmp_path):
    labelled = 'label_filename: "labels.txt"'
    for name in ("a", "b"):
        write_identity(tmp_path, name)
        config = tmp_path / name / "config.pbtxt"
        config.write_text(config.read_text().replace('"OUTPUT0"', f'"OUTPUT0" {labelled}'))
        (tmp_path / name / "labels.txt").write_text(f"{name}0\n{name}1\n")
    write_ensemble(tmp_path, "inner", "a", "b")
    write_ensemble(tmp_path, "outer", "inner")
    own = write_ensemble(tmp_path, "own", "b") / "config.pbtxt"
    own.write_text(own.read_text().replace('{ name: "OUTPUT0"', f'{{ name: "OUTPUT0" {labelled}'))
    (tmp_path / "own" / "labels.txt").write_text("mine\n")
    for name in ("outer", "own"):
        await server.load_model(name)

    assert server.model("outer").labels_of("OUTPUT0") == ["b0", "b1"]
    assert server.model("own").labels_of("OUTPUT0") == ["mine"]


async def test_sch_086_output_that_the_ensemble_does_not_have_is_refused(server, tmp_path):
    write_identity(tmp_path, "a")
    write_ensemble(tmp_path, "e", "a", "a")
    await server.load_model("e")
    request = identity_request("e")
    request.requested_outputs = [RequestedOutput("t1")]
    with pytest.raises(ServingError, match="unexpected inference output 't1' for model 'e'"):
        await server.infer_async(request)
    assert server.model("a").stats.snapshot().success.count == 0


async def test_sequence_through_an_ensemble_outlives_the_reload_of_its_part(server, tmp_path):
    sequences = "sequence_batching { max_sequence_idle_microseconds: 60000000 }\n"
    write_identity(tmp_path, "a", extra=sequences)
    write_ensemble(tmp_path, "inner", "a")
    write_ensemble(tmp_path, "e", "inner")
    await server.load_model("e")

    async def send(**flags: bool) -> None:
        request = identity_request("e")
        request.correlation_id = 7
        request.sequence_start = flags.get("start", False)
        request.sequence_end = flags.get("end", False)
        assert (await server.infer_async(request)).error is None

    await send(start=True)
    write_identity(tmp_path, "a", extra=sequences + 'metric_tags { key: "x" value: "y" }\n')
    await server.load_model("a")
    await send()
    await send(end=True)
    await server.settled()

    with pytest.raises(ServingError, match="START"):
        await send()
