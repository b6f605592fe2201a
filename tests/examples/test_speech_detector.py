"""The speech detector keeps its state in the server: its answers are those of the bare runtime,
chunk by chunk, over HTTP and gRPC, alone and among others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.examples.conftest import REPOSITORY
from tests.serving.frontends.process import ServerProcess

MODEL = "speech_detector"
FILE = REPOSITORY / MODEL / "1" / "model.onnx"
RATE = 16_000
STEP, CONTEXT = 512, 64


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    if not FILE.is_file():
        pytest.skip("the demo models are not fetched: python -m examples.fetch_models")
    options = (
        f"--model-repository={REPOSITORY}",
        "--model-control-mode=explicit",
        f"--load-model={MODEL}",
    )
    with ServerProcess(options) as server:
        yield server


def chunks(seed: int, count: int = 40) -> list[np.ndarray]:
    """A buzz that comes and goes, [1, 576] each."""
    generator = np.random.default_rng(seed)
    at = np.arange(CONTEXT + count * STEP) / RATE
    pitch = 110 + 20 * seed
    buzz = sum(np.sin(2 * np.pi * pitch * number * at) / number for number in range(1, 20))
    sound = buzz * (np.sin(2 * np.pi * 3 * at) > 0) * 0.2 + generator.normal(0, 0.01, at.size)
    sound = sound.astype(np.float32)
    return [
        sound[start : start + CONTEXT + STEP].reshape(1, -1)
        for start in range(0, count * STEP, STEP)
    ]


def expected(sound: list[np.ndarray]) -> list[float]:
    """The bare runtime, its state carried by hand."""
    session = onnxruntime.InferenceSession(FILE, providers=["CPUExecutionProvider"])
    state = np.zeros((2, 1, 128), np.float32)
    found = []
    for chunk in sound:
        feed = {"input": chunk, "state": state, "sr": np.array(RATE, np.int64)}
        probability, state = session.run(["output", "stateN"], feed)
        found.append(probability.item())
    return found


def inputs(library: Any, chunk: np.ndarray) -> list[Any]:
    sound = library.InferInput("input", list(chunk.shape), "FP32")
    sound.set_data_from_numpy(chunk)
    rate = library.InferInput("sr", [1], "INT64")
    rate.set_data_from_numpy(np.array([RATE], np.int64))
    return [sound, rate]


def heard(library: Any, client: Any, sound: list[np.ndarray], sequence: int | str) -> list[float]:
    found = []
    for place, chunk in enumerate(sound):
        result = client.infer(
            MODEL,
            inputs(library, chunk),
            sequence_id=sequence,
            sequence_start=place == 0,
            sequence_end=place == len(sound) - 1,
        )
        found.append(result.as_numpy("output").item())
    return found


def test_the_answers_over_http_are_those_of_the_bare_runtime(served: ServerProcess) -> None:
    sound = chunks(1)
    with closing(httpclient.InferenceServerClient(served.http)) as client:
        assert heard(httpclient, client, sound, 11) == expected(sound)
        assert heard(httpclient, client, sound, 11) == expected(sound), "a new sequence is afresh"


def test_the_answers_over_grpc_are_those_of_the_bare_runtime(served: ServerProcess) -> None:
    sound = chunks(2)
    with closing(grpcclient.InferenceServerClient(served.grpc)) as client:
        assert heard(grpcclient, client, sound, "a caller") == expected(sound)


def test_a_stream_takes_the_chunks_without_waiting_for_answers(served: ServerProcess) -> None:
    sound = chunks(3)
    answers: SimpleQueue[Any] = SimpleQueue()
    with closing(grpcclient.InferenceServerClient(served.grpc)) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for place, chunk in enumerate(sound):
            client.async_stream_infer(
                MODEL,
                inputs(grpcclient, chunk),
                request_id=str(place),
                sequence_id=33,
                sequence_start=place == 0,
                sequence_end=place == len(sound) - 1,
            )
        found = [answers.get(timeout=20) for _ in sound]
        client.stop_stream()

    assert [error for _, error in found if error] == []
    assert [result.get_response().id for result, _ in found] == [str(n) for n in range(len(sound))]
    assert [result.as_numpy("output").item() for result, _ in found] == expected(sound)


def test_callers_at_the_same_time_do_not_hear_each_other(served: ServerProcess) -> None:
    sounds = [chunks(seed, 20) for seed in range(10)]

    def one(seed: int) -> list[float]:
        with closing(httpclient.InferenceServerClient(served.http)) as client:
            return heard(httpclient, client, sounds[seed], 100 + seed)

    with ThreadPoolExecutor(10) as threads:
        found = list(threads.map(one, range(10)))

    assert found == [expected(sound) for sound in sounds]


def test_a_caller_can_neither_see_nor_send_the_state(served: ServerProcess) -> None:
    with closing(httpclient.InferenceServerClient(served.http)) as client:
        metadata = client.get_model_metadata(MODEL)
        assert [item["name"] for item in metadata["inputs"]] == ["input", "sr"]
        assert [item["name"] for item in metadata["outputs"]] == ["output"]
        wanted = [httpclient.InferRequestedOutput("stateN")]
        with pytest.raises(InferenceServerException, match="unexpected inference output 'stateN'"):
            client.infer(
                MODEL,
                inputs(httpclient, chunks(1, 1)[0]),
                outputs=wanted,
                sequence_id=1,
                sequence_start=True,
            )


def test_a_chunk_without_a_beginning_is_refused(served: ServerProcess) -> None:
    with (
        closing(httpclient.InferenceServerClient(served.http)) as client,
        pytest.raises(InferenceServerException, match="must specify the START flag"),
    ):
        client.infer(MODEL, inputs(httpclient, chunks(1, 1)[0]), sequence_id=999)
