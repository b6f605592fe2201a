"""Triton's sample backends with configs as in its own tests (SMP-01)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ErrorCode, ServingError
from serving.in_process import ModelServer
from tests.serving.backends.contract import BackendContract, Subject
from tests.waiting import wait_until_blocking

REPEAT = """
name: "repeat_int32"
backend: "repeat"
max_batch_size: 0
model_transaction_policy {
  decoupled: True
}
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""
SQUARE = """
name: "square_int32"
backend: "square"
max_batch_size: 0
model_transaction_policy { decoupled: True }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
SEQUENCE = """
name: "simple_sequence"
backend: "sequence"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  control_input [
    {
      name: "START"
      control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ]
    },
    {
      name: "READY"
      control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ]
    }
  ]
}
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
DYNA = """
name: "simple_dyna_sequence"
backend: "dyna_sequence"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest {
    max_candidate_sequences: 4
    preferred_batch_size: [ 1, 4 ]
    max_queue_delay_microseconds: 0
  }
  control_input [
    {
      name: "START"
      control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ]
    },
    {
      name: "END"
      control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ]
    },
    {
      name: "READY"
      control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ]
    },
    {
      name: "CORRID"
      control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ]
    }
  ]
}
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
QUERY = """
name: "query"
backend: "query"
max_batch_size: 0
input [ { name: "INPUT" data_type: TYPE_UINT8 dims: [ 1 ] } ]
output [
  { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ 1 ] },
  { name: "OUTPUT1" data_type: TYPE_UINT8 dims: [ 1 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""
ADD_SUB = """
backend: "distributed_addsub"
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "INPUT1" data_type: TYPE_FP32 dims: [ -1 ] }
]
output [
  { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ -1 ] }
]
"""
MODELS = {
    "repeat_int32": REPEAT,
    "square_int32": SQUARE,
    "simple_sequence": SEQUENCE,
    "simple_dyna_sequence": DYNA,
    "query": QUERY,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    root = tmp_path_factory.mktemp("samples")
    for name, text in MODELS.items():
        write(root, name, text)
    with ModelServer(root, exit_timeout_secs=5) as server:
        for name in MODELS:
            server.load(name)
        yield server


def write(root: Path, name: str, text: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(text)


def repeat(values: list[int], delays: list[int], wait: int = 0) -> dict[str, np.ndarray]:
    return {
        "IN": np.array(values, np.int32),
        "DELAY": np.array(delays, np.uint32),
        "WAIT": np.array([wait], np.uint32),
    }


def test_repeat_sends_each_element_with_its_place(served):
    answers = list(served.stream("repeat_int32", repeat([4, 2, 0], [1, 0, 0])))

    assert [int(item["OUT"][0]) for item in answers] == [4, 2, 0]
    assert [int(item["IDX"][0]) for item in answers] == [0, 1, 2]


def test_repeat_of_nothing_sends_the_final_flag_alone(served):
    assert list(served.stream("repeat_int32", repeat([], []))) == []


def test_repeat_refuses_delays_that_do_not_fit_its_elements(served):
    with pytest.raises(ServingError, match="IN has 2 elements and DELAY has 1: send as many"):
        list(served.stream("repeat_int32", repeat([1, 2], [0])))


@pytest.mark.parametrize(
    ("model", "text", "empty"),
    [
        (
            "repeat_int32",
            REPEAT.replace("dims: [ 1 ] }\n]\noutput", "dims: [-1] }\n]\noutput"),
            "WAIT",
        ),
        ("square_int32", SQUARE.replace("dims: [ 1 ]", "dims: [-1]", 1), "IN"),
    ],
)
def test_a_number_that_was_left_empty_is_the_callers_mistake(tmp_path, model, text, empty):
    """It is answered, and says which input; a thread that died of it would leave it open."""
    inputs = repeat([1], [0]) if empty == "WAIT" else {}
    inputs[empty] = np.zeros(0, inputs[empty].dtype if empty in inputs else np.int32)
    write(tmp_path, model, text)
    with ModelServer(tmp_path, exit_timeout_secs=5) as server:
        server.load(model)
        with pytest.raises(ServingError, match=f"{empty} is empty") as caught:
            list(server.stream(model, inputs))

    assert caught.value.code is ErrorCode.INVALID_ARG


def test_be_007_the_instance_takes_the_next_request_while_answers_are_to_come(served):
    """The factory is kept by another thread, and the inputs are released."""
    slow = served.stream("repeat_int32", repeat([1], [60_000]))
    with contextlib.closing(slow):
        quick = list(served.stream("repeat_int32", repeat([7], [0])))
        assert [int(item["OUT"][0]) for item in quick] == [7]


def test_square_answers_n_with_n_responses(served):
    answers = list(served.stream("square_int32", {"IN": np.array([3], np.int32)}))

    assert [int(item["OUT"][0]) for item in answers] == [3, 3, 3]


@pytest.mark.parametrize(
    ("model", "last"), [("simple_sequence", 6), ("simple_dyna_sequence", 6 + 42)]
)
def test_sequences_are_added_up_and_kept_apart(served, model, last):
    """dyna_sequence adds the correlation id to the last answer."""

    def send(sequence: int, value: int, **flags: bool) -> int:
        inputs = {"INPUT": np.array([[value]], np.int32)}
        answer = served.infer(model, inputs, sequence_id=sequence, **flags)
        return int(answer["OUTPUT"][0, 0])

    assert send(42, 1, sequence_start=True) == 1
    assert send(7, 100, sequence_start=True) == 100
    assert send(42, 2) == 3
    assert send(42, 3, sequence_end=True) == last
    assert send(42, 5, sequence_start=True) == 5
    for sequence in (7, 42):
        send(sequence, 0, sequence_end=True)


def test_query_names_the_memory_of_its_outputs(served):
    with pytest.raises(ServingError, match="OUTPUT0 CPU 0; OUTPUT1 CPU 0"):
        served.infer("query", {"INPUT": np.zeros(1, np.uint8)})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (REPEAT.replace("decoupled: True", "decoupled: False"), "any number of times"),
        (SQUARE.replace('"OUT"', '"OTHER"'), "needs the outputs OUT, the config has OTHER"),
        (SEQUENCE.replace("sequence_batching", "dynamic_batching {} #", 1).split("#")[0]
         + 'input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } '
         + 'output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }', "set sequence_batching"),
        (ADD_SUB.replace('TYPE_FP32', 'TYPE_INT8', 1), "same numeric data_type"),
        (ADD_SUB.replace('TYPE_FP32', 'TYPE_BOOL'), "same numeric data_type"),
        (SQUARE.replace('TYPE_INT32', 'TYPE_FP32'), "IN of the square backend is a whole number"),
        (REPEAT.replace('TYPE_UINT32', 'TYPE_STRING'), "DELAY of the repeat backend is a whole"),
    ],
)  # fmt: skip
def test_a_config_that_a_sample_cannot_serve_is_refused(served, tmp_path, text, reason):
    text = "\n".join(line for line in text.splitlines() if not line.startswith("name:"))
    write(tmp_path, "wrong", text)

    with (
        ModelServer(tmp_path, exit_timeout_secs=5) as server,
        pytest.raises(ServingError, match=reason),
    ):
        server.load("wrong")


def test_identity_multiplies_its_delay_by_the_number_of_the_instance(tmp_path):
    """SMP-01: instance_wise_delay_multiplier; creation_delay_sec makes an instance come late."""
    parameters = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in (
            *(("execute_delay_ms", 10), ("instance_wise_delay_multiplier", 3)),
            ("creation_delay_sec", 0.05),
        )
    )
    io = 'input { name: "I" data_type: TYPE_FP32 dims: 1 } '
    io += 'output { name: "O" data_type: TYPE_FP32 dims: 1 }'
    write(tmp_path, "late", f'backend: "identity" {io} {parameters}')
    with ModelServer(tmp_path, exit_timeout_secs=5) as server:
        begin = time.monotonic()
        model = server.load("late")
        loaded = time.monotonic()
        model.infer({"I": np.zeros(1, np.float32)})

    assert loaded - begin >= 0.05
    assert time.monotonic() - loaded >= 0.03


def test_a_stream_that_is_closed_ends_its_thread(served):
    stream = served.stream("repeat_int32", repeat([1], [100_000]))
    stream.close()

    wait_until_blocking(lambda: not any(x.name == "repeat_int32" for x in threading.enumerate()))


class TestDistributedAddSub(BackendContract):
    backend = "distributed_addsub"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls) -> Subject:
        def rows(count: int) -> dict[str, np.ndarray]:
            first = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
            return {"INPUT0": first, "INPUT1": first * 2 + 1}

        return Subject(
            config=ADD_SUB,
            write=lambda folder: None,
            inputs=rows,
            expected=lambda sent: {
                "OUTPUT0": sent["INPUT0"] + sent["INPUT1"],
                "OUTPUT1": sent["INPUT0"] - sent["INPUT1"],
            },
            misfit=lambda: rows(1) | {"INPUT1": np.ones((1, 2), np.float32)},
            completes=False,
            has_file=False,
        )
