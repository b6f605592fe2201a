"""Backends that are shared libraries: life cycle, answers, errors, threads, crashes."""

from __future__ import annotations

import ctypes
import logging
import shutil

import numpy as np
import pytest

from serving.backends.native.tensors import RequestMemory
from serving.errors import ErrorCode, ServingError
from serving.in_process import ModelServer
from tests.serving.backends.compiled_c import needs_gcc
from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.backends.native.libraries import (
    COUNT_CONFIG,
    PROBE,
    PROBE_CONFIG,
    SCALE_CONFIG,
    build,
    example,
    write_model,
)
from tests.serving.loading import context_of, request_of
from tests.waiting import wait_until_blocking

pytestmark = needs_gcc
PROCESS = 'parameters { key: "instance_isolation" value { string_value: "process" } }'


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A backend directory with all libraries."""
    root = tmp_path_factory.mktemp("backends")
    build(PROBE, root / "probe" / "libconch_probe.so")
    for name in ("scale", "count"):
        example(name, root / name)
    return root


@pytest.fixture
def journal(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    monkeypatch.setenv("PROBE_JOURNAL", str(path))
    return lambda: path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def served(directory, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(root, "probe", PROBE_CONFIG)
    batching = (
        "dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 2000000 }"
    )
    write_model(root, "batched", PROBE_CONFIG + batching)
    write_model(root, "count", COUNT_CONFIG + "model_transaction_policy { decoupled: true }")
    write_model(
        root, "count_apart", COUNT_CONFIG + "model_transaction_policy { decoupled: true }" + PROCESS
    )
    write_model(root, "apart", PROBE_CONFIG + PROCESS)
    with ModelServer(root, backend_directory=directory, exit_timeout_secs=5) as server:
        for name in ("probe", "batched", "count", "count_apart", "apart"):
            server.load(name)
        yield server


def told(what, *values, rows=1):
    return {
        "WHAT": np.array([[what.encode()]] * rows, np.object_),
        "X": np.array([values or [0.5]] * rows, np.float32),
    }


def failure(server, what, model="probe"):
    with pytest.raises(ServingError) as caught:
        server.infer(model, told(what))
    return caught.value


class TestScale(BackendContract):
    """The example, with its library in the version folder."""

    backend = "scale"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls, directory):
        def write(folder):
            shutil.copy(directory / "scale" / "libconch_scale.so", folder)
            (folder / "factor.txt").write_text("2.5\n")

        return Subject(
            config=SCALE_CONFIG,
            write=write,
            inputs=lambda rows: {"IN": np.random.default_rng().random((rows, 3), np.float32)},
            expected=lambda sent: {"OUT": sent["IN"] * np.float32(2.5)},
            completes=False,
        )


STATE = """
name: "m" backend: "probe"
input { name: "X" data_type: TYPE_FP32 dims: [1] }
output { name: "A" data_type: TYPE_FP32 dims: [1] }
output { name: "B" data_type: TYPE_FP32 dims: [1] }
sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [1] } }
"""


@pytest.mark.parametrize(("asked", "told"), [(("B",), [b"B", b"T"]), ((), [])])
def test_a_library_is_told_which_outputs_are_wanted_with_the_states(asked, told):
    """None means all."""
    request = request_of({"X": np.zeros(1, np.float32)}, outputs=asked)

    memory = RequestMemory(request, context_of(STATE).spec)

    wanted = memory.structure
    assert list((ctypes.c_char_p * wanted.output_count).from_address(wanted.outputs)) == told


# -- life cycle


def test_everything_is_initialised_once_and_finalised_in_turn(directory, tmp_path, journal):
    """BE-001, BE-002, BE-003: the backend before its first model, and not again for the next."""
    root = tmp_path / "models"
    write_model(root, "a", PROBE_CONFIG + "instance_group { count: 2 kind: KIND_CPU }")
    write_model(root, "b", PROBE_CONFIG)
    with ModelServer(root, backend_directory=directory, exit_timeout_secs=5) as server:
        server.load("a")
        server.unload("a")
        wait_until_blocking(lambda: "model_finalize a" in journal())
        server.load("b")
        calls = journal()
        assert calls[:2] == ["backend_initialize probe", "model_initialize a"]
        assert sorted(calls[2:4]) == ["instance_initialize a_0_0", "instance_initialize a_0_1"]
        assert sorted(calls[4:6]) == ["instance_finalize a_0_0", "instance_finalize a_0_1"]
        assert calls[6:] == ["model_finalize a", "model_initialize b", "instance_initialize b_0"]
    assert journal()[9:] == [
        "instance_finalize b_0",
        "model_finalize b",
        "backend_finalize probe",
    ]


def test_an_error_of_the_backend_fails_the_load_and_the_next_one_tries_again(
    directory, tmp_path, journal
):
    """BE-003, BE-011: --backend-config reaches the library."""
    write_model(tmp_path / "models", "a", PROBE_CONFIG)
    options = {"backend_config": {"probe": {"licence": "none"}}}
    with ModelServer(tmp_path / "models", backend_directory=directory, **options) as server:
        for _ in range(2):
            with pytest.raises(ServingError) as caught:
                server.load("a")
            assert (
                "backend 'probe' could not be initialised: there is no licence for probe"
                in caught.value.message
            )
    assert journal() == ["backend_initialize probe"] * 2


def test_an_error_of_the_model_fails_its_load(directory, tmp_path, journal, caplog):
    """BE-002: it has seen its config, and logged it."""
    write_model(
        tmp_path / "models",
        "a",
        PROBE_CONFIG + 'parameters { key: "k" value { string_value: "refuse this model" } }',
    )
    with (
        caplog.at_level(logging.WARNING, "serving.backends.native"),
        ModelServer(tmp_path / "models", backend_directory=directory) as server,
        pytest.raises(ServingError, match="backend 'probe': version 1 is not liked"),
    ):
        server.load("a")
    assert '"max_batch_size": 4' in caplog.text
    assert "backend=probe" in caplog.text
    assert "model_finalize a" not in journal()


def test_the_example_says_which_file_it_misses(directory, tmp_path):
    write_model(tmp_path / "models", "m", SCALE_CONFIG)
    with (
        ModelServer(tmp_path / "models", backend_directory=directory) as server,
        pytest.raises(ServingError, match="model 'm' needs a file factor.txt in its version"),
    ):
        server.load("m")


# -- answers


def test_what_a_request_says_reaches_the_library_and_parameters_come_back(served):
    """BE-008: bool, int, string and double."""
    answer = served.model("probe").submit(
        told("echo", 1, 2, 3),
        request_id="seven",
        sequence_id=42,
        sequence_start=True,
        priority=3,
        timeout=1002,
        parameters={"text": "äpfel", "number": -5, "flag": True, "share": 0.25},
        outputs=["OUT"],
    )

    response = answer.result(10)
    assert list(response.outputs) == ["OUT"]
    assert response["OUT"].tolist() == [[1, 2, 3]]
    assert response.parameters == {
        "the id": "seven",
        "correlation": 42,
        "correlation text": "",
        "starts": True,
        "batch": 1,
        "priority": 3,
        "timeout": 250.5,
        "wanted": "OUT",
        "text": "äpfel",
        "number": -5,
        "flag": True,
        "share": 0.25,
    }


def test_text_goes_both_ways(served):
    answer = served.infer("probe", told("echo", rows=2))

    assert answer["TEXT"].tolist() == [[b"echo"], [b"echo"]]


def test_a_thread_of_the_library_may_answer_while_it_executes(served):
    """BE-005, BE-007."""
    assert served.infer("probe", told("thread", 4))["OUT"].tolist() == [[4]]
    assert served.infer("apart", told("thread", 4))["OUT"].tolist() == [[4]]


@pytest.mark.parametrize("model", ["count", "count_apart"])
def test_a_decoupled_backend_answers_from_its_own_threads(served, model):
    """BE-007: any number, the end told by the flag alone, after execute has returned."""
    streams = [served.model(model).stream({"IN": np.array([n], np.int32)}) for n in (3, 0, 1)]

    found = [[int(item["OUT"][0]) for item in stream if item.outputs] for stream in streams]

    assert found == [[0, 1, 2], [], [0]]


def test_a_request_that_was_cancelled_ends_soon(served):
    """BE-007: is_cancelled, in a thread of the library."""
    stream = served.model("count").stream({"IN": np.array([2**31 - 1], np.int32)})
    next(iter(stream))
    stream.close()

    assert [
        int(item["OUT"][0])
        for item in served.model("count").stream({"IN": np.array([1], np.int32)})
    ] == [0]


# -- errors


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (2, ErrorCode.INTERNAL),
        (4, ErrorCode.INVALID_ARG),
        (5, ErrorCode.UNAVAILABLE),
        (99, ErrorCode.UNKNOWN),
    ],
)
def test_a_response_may_be_an_error_with_its_code(served, number, code):
    error = failure(served, f"error {number}")

    assert (error.code, error.message) == (code, "model 'probe' failed: as was asked")


def test_an_error_of_execute_fails_the_requests_without_an_answer(served):
    """BE-004: those that had theirs keep it."""
    good = served.model("batched").submit(told("echo", 5))
    bad = served.model("batched").submit(told("failure"))

    assert good.result(10)["OUT"].tolist() == [[5]]
    error = bad.exception(10)
    assert (error.code, error.message) == (
        ErrorCode.UNAVAILABLE,
        "model 'batched' failed to execute: the machine is out of order",
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("unknown output", "output 'NEVER' is none of the config's, which are OUT, TEXT"),
        ("wrong type", "output 'OUT' has data type 8, the config says TYPE_FP32 (11)"),
        ("wrong size", "output 'OUT' has 4 bytes, its shape [1, 2] of FP32 takes 8"),
        ("negative size", "output 'OUT' has the shape [1, -2]"),
        ("huge", "Unable to allocate"),
        ("no data", "output 'OUT' has 8 bytes at no address"),
        ("no tensors", "the response has outputs and no tensors"),
        ("not final", "must give one response to each request, with CONCH_RESPONSE_FINAL"),
    ],
)
def test_a_response_that_cannot_be_sent_fails_its_request_and_tells_the_library(
    served, journal, what, words
):
    """BE-007."""
    error = failure(served, what)

    assert error.code is ErrorCode.INTERNAL
    assert error.message.startswith("model 'probe' gave a response that cannot be sent: ")
    assert words in error.message
    assert words in journal()[-1]
    assert served.infer("probe", told("echo"))


def test_a_second_response_is_refused(served, journal):
    """BE-007."""
    assert served.infer("probe", told("twice"))["OUT"].tolist() == [[1, 2]]
    assert journal()[-1] == "second the request has had its final response, or there never was one"


def test_no_response_is_an_error(served):
    """BE-007."""
    assert "expected a single response" in failure(served, "silent").message


def test_a_crash_ends_only_the_process_of_the_instance(served):
    """BE-004: where it has one; its request fails, and it comes back."""
    error = failure(served, "crash", "apart")

    assert error.code is ErrorCode.INTERNAL
    assert "SIGABRT" in error.message
    assert served.infer("probe", told("echo"))
    model = served.model("apart")
    wait_until_blocking(model.is_ready, 20)
    assert model.infer(told("echo", 6))["OUT"].tolist() == [[6]]


@pytest.mark.parametrize("host", ["", PROCESS], ids=["thread", "process"])
def test_an_instance_says_when_it_is_not_ready(directory, tmp_path, monkeypatch, host):
    """BE-009."""
    mark = tmp_path / "not ready"
    monkeypatch.setenv("PROBE_NOT_READY", str(mark))
    write_model(tmp_path / "models", "m", PROBE_CONFIG + host)
    with ModelServer(tmp_path / "models", backend_directory=directory) as server:
        server.load("m")

        async def says_ready():
            check = server.thread.server.ready_check("m")
            return check is not None and await check

        def is_ready():
            return server.thread.call(says_ready(), 10)

        assert is_ready()
        mark.touch()
        assert not is_ready()
        mark.unlink()
        assert is_ready()
