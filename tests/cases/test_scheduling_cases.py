"""What goes wrong with batches and sequences in real reports, as HTTP clients see it."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.cases.lifecycle_server import Client, write_python
from tests.waiting import wait_until_blocking

INT = 'input { name: "%s" data_type: TYPE_INT32 dims: [ 1 ] }\n'
OUT = 'output { name: "%s" data_type: TYPE_INT32 dims: [ 1 ] }\n'
ONE = "instance_group { kind: KIND_CPU count: 1 }\n"
SLEEP = """
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            inputs = [pb_utils.get_input_tensor_by_name(r, "MS").as_numpy() for r in requests]
            rows = sum(array.shape[0] for array in inputs)
            time.sleep(max(int(array.max()) for array in inputs) / 1000)
            return [
                pb_utils.InferenceResponse([
                    pb_utils.Tensor("ROWS", np.full_like(array, rows)),
                    pb_utils.Tensor("ECHO", array),
                ])
                for array in inputs
            ]
"""
APPLES = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            inputs = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
            values = [int(array.item()) for array in inputs]
            if 13 in values:
                raise RuntimeError("thirteen takes all with it")
            answers = [self.answer(array) for array in inputs]
            if 14 in values:
                answers.pop()
            if 15 in values:
                answers[values.index(15)] = None
            return answers

        def answer(self, array):
            if array.item() < 0:
                error = pb_utils.TritonError(f"{array.item()} is below zero")
                return pb_utils.InferenceResponse(error=error)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)])
"""
ACCUM = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    def value(request, name):
        return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0])

    class TritonPythonModel:
        def initialize(self, args):
            self.sums = {}

        def execute(self, requests):
            return [self.answer(request) for request in requests]

        def answer(self, request):
            key = value(request, "CORRID")
            if value(request, "READY"):
                before = 0 if value(request, "START") else self.sums[key]
                self.sums[key] = before + value(request, "X")
            array = np.array([[self.sums.get(key, 0)]], np.int32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)])
"""
CONTROLS = "".join(
    f'control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} '
    "int32_false_true: [ 0, 1 ] } }\n"
    for kind in ("START", "END", "READY")
) + (
    'control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID '
    "data_type: TYPE_UINT64 } }\n"
)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(48) as made:
        yield made


def serve(client: Client, source: str, io: str, more: str, *, size: int = 8) -> None:
    model = write_python(client.root, "m", source, 1)
    (model / "config.pbtxt").write_text(
        f'backend: "python"\nmax_batch_size: {size}\n{io}{ONE}{more}'
    )
    assert client.load("m").status_code == 200


def ask(client: Client, name: str, value: int, rows: int = 1, **parameters: Any) -> httpx.Response:
    tensor = {"name": name, "datatype": "INT32", "shape": [rows, 1], "data": [value] * rows}
    return client.post("/models/m/infer", {"inputs": [tensor], "parameters": parameters})


def rows_of(answers: list[Future[httpx.Response]]) -> list[int]:
    """How many rows the execution of each request had."""
    bodies = [answer.result(30).json() for answer in answers]
    outputs = [{item["name"]: item["data"][0] for item in body["outputs"]} for body in bodies]
    return [output["ROWS"] for output in outputs]


def counts(client: Client) -> tuple[int, int, int]:
    """Requests, inferences, executions."""
    row = client.get("/models/m/stats").json()["model_stats"][0]
    success = row["inference_stats"]["success"]["count"]
    return success, row["inference_count"], row["execution_count"]


def serve_sleep(client: Client, delay_us: int) -> None:
    io = INT % "MS" + OUT % "ROWS" + OUT % "ECHO"
    serve(
        client,
        SLEEP,
        io,
        f"dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}\n",
    )


# C47


def test_c47_a_full_batch_does_not_wait_for_the_delay(client, threads):
    serve_sleep(client, 5_000_000)
    start_s = time.monotonic()

    answers = [threads.submit(ask, client, "MS", 0) for _ in range(8)]

    assert rows_of(answers) == [8] * 8
    assert time.monotonic() - start_s < 4
    assert counts(client) == (8, 8, 1)


def test_c47_a_batch_that_is_not_full_waits_for_the_delay(client, threads):
    serve_sleep(client, 500_000)
    start_s = time.monotonic()

    answers = [threads.submit(ask, client, "MS", 0) for _ in range(3)]

    assert rows_of(answers) == [3] * 3
    assert time.monotonic() - start_s >= 0.45
    assert counts(client) == (3, 3, 1)


def test_c47_a_burst_runs_in_full_batches(client, threads):
    serve_sleep(client, 5_000_000)

    answers = [threads.submit(ask, client, "MS", 0) for _ in range(40)]

    assert rows_of(answers) == [8] * 40
    assert counts(client) == (40, 40, 5)


def test_c47_without_a_delay_the_first_runs_alone_and_the_rest_merges(client, threads):
    serve_sleep(client, 0)

    first = threads.submit(ask, client, "MS", 700)
    wait_until_blocking(lambda: client.requests_at_work("m") == 1)
    rest = [threads.submit(ask, client, "MS", 0) for _ in range(6)]

    assert rows_of([first, *rest]) == [1, *[6] * 6]
    assert counts(client) == (7, 7, 2)


# C50


def serve_apples(client: Client) -> None:
    more = "dynamic_batching { max_queue_delay_microseconds: 10000000 }\n"
    serve(client, APPLES, INT % "X" + OUT % "Y", more, size=4)


def together(client: Client, threads: ThreadPoolExecutor, *values: int) -> list[httpx.Response]:
    """Four requests, which run as one batch."""
    answers = [threads.submit(ask, client, "X", value) for value in values]
    return [answer.result(30) for answer in answers]


def test_c50_one_bad_request_fails_alone_with_its_own_message(client, threads):
    serve_apples(client)

    *good, bad = together(client, threads, 1, 2, 3, -4)

    assert [answer.json()["outputs"][0]["data"] for answer in good] == [[1], [2], [3]]
    assert bad.status_code >= 400
    assert "-4 is below zero" in bad.json()["error"]
    assert client.get("/models/m/stats").json()["model_stats"][0]["execution_count"] == 1


def test_c50_an_exception_fails_the_batch_and_the_next_one_works(client, threads):
    serve_apples(client)

    failed = together(client, threads, 1, 2, 13, 4)
    worked = together(client, threads, 1, 2, 3, 4)

    assert {answer.status_code for answer in failed} == {500}
    assert all("thirteen takes all with it" in answer.json()["error"] for answer in failed)
    assert {answer.status_code for answer in worked} == {200}


@pytest.mark.parametrize(("value", "words"), [(14, "3"), (15, "None")])
def test_c50_a_list_that_is_too_short_or_has_a_none_fails_all_and_says_why(
    client, threads, value, words
):
    serve_apples(client)

    failed = together(client, threads, 1, 2, 3, value)

    assert {answer.status_code for answer in failed} == {500}
    assert all(words in answer.json()["error"] for answer in failed)
    assert {answer.status_code for answer in together(client, threads, 1, 2, 3, 4)} == {200}


# C52


@pytest.fixture
def accumulating(client: Client) -> Client:
    batching = f"sequence_batching {{\n{CONTROLS}}}\n"
    serve(client, ACCUM, INT % "X" + OUT % "Y", batching, size=2)
    return client


def step(client: Client, value: int, key: Any, flags: str = "", rows: int = 1) -> httpx.Response:
    return ask(
        client,
        "X",
        value,
        rows,
        sequence_id=key,
        sequence_start="+" in flags,
        sequence_end="-" in flags,
    )


def refused(answer: httpx.Response) -> str:
    assert answer.status_code == 400
    return str(answer.json()["error"])


def test_c52_a_new_sequence_needs_the_start(accumulating):
    assert "START" in refused(step(accumulating, 1, 7))


def test_c52_a_request_needs_an_id(accumulating):
    assert "correlation ID" in refused(step(accumulating, 1, 0, "+"))
    assert "correlation ID" in refused(ask(accumulating, "X", 1))


def test_c52_a_request_has_one_row(accumulating):
    assert "batch-size 1" in refused(step(accumulating, 1, 7, "+", rows=2))


def test_c52_sums_run_until_the_end_and_then_a_start_is_needed(accumulating):
    steps = ((3, "+"), (4, ""), (5, "-"))
    answers = [step(accumulating, value, 7, flags) for value, flags in steps]

    assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[3], [7], [12]]
    assert "START" in refused(step(accumulating, 1, 7))
