"""Decoupled models through every door. Spec SCH-100..103."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.serving.frontends.process import ServerProcess
from tests.serving.frontends.raw_http import RawClient, RawResponse

COUNT = """
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(sender, count)).start()

    def answer(self, sender, count):
        for number in range(count):
            tensor = pb_utils.Tensor("OUT", np.array([number], np.int32))
            sender.send(pb_utils.InferenceResponse([tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
WRONG = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        count = int(pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()[0])
        tensor = pb_utils.Tensor("OUT", np.array([0], np.int32))
        return [pb_utils.InferenceResponse([tensor])] * count
"""
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: [1] }
output { name: "OUT" data_type: TYPE_INT32 dims: [1] }
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("repository")
    _write(repository / "many", COUNT, "model_transaction_policy { decoupled: true }")
    _write(repository / "wrong", WRONG)
    with ServerProcess((f"--model-repository={repository}",)) as server:
        yield server


def _write(model: Path, source: str, extra: str = "") -> None:
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(source)
    (model / "config.pbtxt").write_text(CONFIG + extra)


async def post(served: ServerProcess, path: str, body: object) -> RawResponse:
    client = await RawClient.connect(served.ports["HTTP"])
    answer = await client.request("POST", f"/v2/models/{path}", json.dumps(body).encode())
    await client.close()
    return answer


def infer_body(count: int) -> dict[str, Any]:
    return {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [count]}]}


def input_of(count: int) -> Any:
    item = grpcclient.InferInput("IN", [1], "INT32")
    item.set_data_from_numpy(np.array([count], np.int32))
    return item


class Stream:
    """Collects what comes back on one gRPC stream until each request has ended."""

    def __init__(self, served: ServerProcess, *, empty_final: bool) -> None:
        self.empty_final = empty_final
        self._served = served

    def ask(self, *counts: int) -> dict[str, list[tuple[list[int], bool]]]:
        """By request: (values, triton_final_response) of each response."""
        seen: SimpleQueue[Any] = SimpleQueue()
        with closing(grpcclient.InferenceServerClient(self._served.grpc)) as client:
            client.start_stream(lambda result, error: seen.put((result, error)))
            for number, count in enumerate(counts):
                client.async_stream_infer(
                    "many",
                    [input_of(count)],
                    request_id=f"r{number}",
                    enable_empty_final_response=self.empty_final,
                )
            client.stop_stream()
        answers: dict[str, list[tuple[list[int], bool]]] = {}
        while not seen.empty():
            result, error = seen.get()
            assert error is None
            response = result.get_response()
            array = result.as_numpy("OUT")
            values = [] if array is None else array.tolist()
            is_final = response.parameters["triton_final_response"].bool_param
            answers.setdefault(response.id, []).append((values, is_final))
        return answers


def test_a_request_gets_any_number_of_responses_and_one_final_flag(served: ServerProcess) -> None:
    """SCH-100."""
    answers = Stream(served, empty_final=True).ask(3, 0, 1)

    assert answers["r0"] == [([0], False), ([1], False), ([2], False), ([], True)]
    assert answers["r1"] == [([], True)]
    assert answers["r2"] == [([0], False), ([], True)]


def test_an_empty_final_response_is_sent_only_to_those_who_ask_for_it(
    served: ServerProcess,
) -> None:
    """SCH-102."""
    assert Stream(served, empty_final=False).ask(2, 0) == {"r0": [([0], False), ([1], False)]}


async def test_http_infer_refuses_a_decoupled_model_as_unsupported(served: ServerProcess) -> None:
    """SCH-101."""
    answer = await post(served, "many/infer", infer_body(1))

    assert answer.status == 501
    assert "decoupled" in answer.json["error"]


def test_unary_grpc_refuses_a_decoupled_model_as_unimplemented(served: ServerProcess) -> None:
    """SCH-101."""
    with (
        closing(grpcclient.InferenceServerClient(served.grpc)) as client,
        pytest.raises(InferenceServerException, match="decoupled") as caught,
    ):
        client.infer("many", [input_of(1)])

    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


@pytest.mark.parametrize(("count", "status"), [(0, 400), (1, 200), (2, 400)])
async def test_generate_answers_when_there_is_exactly_one_response(
    served: ServerProcess, count: int, status: int
) -> None:
    """SCH-101."""
    answer = await post(served, "many/generate", {"IN": count})

    assert answer.status == status
    if status == 400:
        assert "expects model to produce exactly 1 response" in answer.json["error"]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_generate_stream_sends_an_event_for_each_response(
    served: ServerProcess, count: int
) -> None:
    """SCH-101."""
    answer = await post(served, "many/generate_stream", {"IN": count})

    events = [json.loads(item[6:]) for item in answer.body.decode().split("\n\n") if item]
    assert answer.status == 200
    assert [event["OUT"] for event in events] == list(range(count))


@pytest.mark.parametrize("count", [0, 2])
async def test_a_model_that_is_not_decoupled_must_answer_exactly_once(
    served: ServerProcess, count: int
) -> None:
    """SCH-103."""
    answer = await post(served, "wrong/infer", infer_body(count))

    assert answer.status == 500
    assert "one for each request" in answer.json["error"]
