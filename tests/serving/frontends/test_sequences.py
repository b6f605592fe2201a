"""Sequences as clients send them: HTTP, gRPC and the gRPC stream. Case C52; spec SCH-050..053."""

from __future__ import annotations

import itertools
import queue
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.serving.backends.python.serving_models import write_model
from tests.serving.frontends.process import ServerProcess
from tests.serving.scheduling.sequence.accumulate import accumulate

_FRESH = itertools.count(1000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("repository")
    numbers, config = accumulate(id_type="TYPE_UINT64")
    write_model(root, "numbers", numbers, config)
    write_model(root, "texts", *accumulate())
    options = (f"--model-repository={root}", "--exit-timeout-secs=1")
    with ServerProcess(options) as process:
        yield process


class Client:
    def __init__(self, kind: str, server: ServerProcess) -> None:
        self.tools = http_client if kind == "http" else grpc_client
        port = server.ports["HTTP" if kind == "http" else "gRPC"]
        self.client = self.tools.InferenceServerClient(f"127.0.0.1:{port}")

    def add(
        self, sequence: int | str, value: float = 1, flags: str = "", *, rows: int = 1
    ) -> float:
        """`flags`: "s" starts, "e" ends the sequence. Returns the sum."""
        tensor = self.tools.InferInput("IN", [rows, 1], "FP32")
        tensor.set_data_from_numpy(np.full((rows, 1), value, np.float32))
        result = self.client.infer(
            "texts" if isinstance(sequence, str) else "numbers",
            [tensor],
            sequence_id=sequence,
            sequence_start="s" in flags,
            sequence_end="e" in flags,
        )
        return float(result.as_numpy("OUT").item())

    def refusal(self, *arguments: object, **options: object) -> InferenceServerException:
        with pytest.raises(InferenceServerException) as caught:
            self.add(*arguments, **options)
        return caught.value


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Client]:
    found = Client(request.param, server)
    yield found
    found.client.close()


def is_client_error(error: InferenceServerException) -> bool:
    return error.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_a_new_id_without_start_is_refused(client: Client) -> None:
    """C52 (a)."""
    error = client.refusal(next(_FRESH))

    assert is_client_error(error)
    assert "START" in error.message()


@pytest.mark.parametrize("sequence", [0, ""])
def test_an_id_that_is_zero_or_absent_is_refused(client: Client, sequence: int | str) -> None:
    """C52 (b)."""
    error = client.refusal(sequence, 1, "s")

    assert is_client_error(error)
    assert "non-zero or non-empty correlation ID" in error.message()


def test_two_items_in_one_request_are_refused(client: Client) -> None:
    """C52 (c)."""
    error = client.refusal(next(_FRESH), 1, "s", rows=2)

    assert is_client_error(error)
    assert "must specify batch-size 1" in error.message()


@pytest.mark.parametrize("as_text", [False, True])
def test_a_sequence_gives_running_sums_until_its_end(client: Client, as_text: bool) -> None:
    """C52 (d)."""
    number = next(_FRESH)
    sequence: int | str = f"sequence {number}" if as_text else number

    sums = [client.add(sequence, 5, "s"), client.add(sequence, 6), client.add(sequence, 7, "e")]
    error = client.refusal(sequence, 8)

    assert sums == [5, 11, 18]
    assert is_client_error(error)
    assert "its last request had the END flag" in error.message()


def test_a_stream_carries_several_sequences(server: ServerProcess) -> None:
    """SCH-050, SCH-051: requests are sent without waiting for answers."""
    answers: queue.Queue[tuple[str, float]] = queue.Queue()

    def on_answer(result: grpc_client.InferResult, error: object) -> None:
        assert error is None, error
        response = result.get_response()
        answers.put((response.id, float(result.as_numpy("OUT").item())))

    first, second = next(_FRESH), next(_FRESH)
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.ports['gRPC']}") as client:
        client.start_stream(on_answer)
        for index, sequence in itertools.product(range(10), (first, second)):
            tensor = grpc_client.InferInput("IN", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.full((1, 1), sequence, np.float32))
            client.async_stream_infer(
                "numbers",
                [tensor],
                request_id=f"{sequence} {index}",
                sequence_id=sequence,
                sequence_start=index == 0,
                sequence_end=index == 9,
            )
        got = dict(answers.get(timeout=20) for _ in range(20))
        client.stop_stream()

    assert got == {
        f"{sequence} {index}": sequence * (index + 1.0)
        for sequence in (first, second)
        for index in range(10)
    }


def test_slots_are_on_the_metrics_page(server: ServerProcess) -> None:
    """SCH-054."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['metrics']}/metrics") as page:
        text = page.read().decode()

    assert 'conch_sequence_slots{model="numbers",version="1"} 4' in text
