"""Implicit state by itself: how a sequence starts, and what one request leaves to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.datatypes import BY_NAME, serialize_bytes
from serving.errors import BackendError, InvalidArgumentError
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.sequence.initial_state import read_initial_states
from serving.scheduling.sequence.state import ImplicitState
from tests.serving.loading import context_of, spec_of


def config(states: str, max_batch_size: int = 2) -> str:
    return f"""
    name: "m" backend: "identity" max_batch_size: {max_batch_size}
    input {{ name: "IN" data_type: TYPE_INT32 dims: [1] }}
    output {{ name: "OUT" data_type: TYPE_INT32 dims: [1] }}
    sequence_batching {{ {states} }}
    """


def state(dims: str = "[1]", kind: str = "TYPE_INT32", initial: str = "") -> str:
    return (
        f'state {{ input_name: "S_IN" output_name: "S_OUT" data_type: {kind} dims: {dims} '
        f"{initial} }}"
    )


def initial(data: str, dims: str = "[2]", kind: str = "TYPE_INT32") -> str:
    return f'initial_state {{ name: "i" data_type: {kind} dims: {dims} {data} }}'


def states_of(text: str, directory: Path = Path("/nonexistent")) -> ImplicitState:
    return ImplicitState(spec_of(text), read_initial_states(context_of(text, directory)))


def answer(array: np.ndarray, datatype: str = "INT32", name: str = "S_OUT") -> InferenceResponse:
    return InferenceResponse(
        "m", 1, "", [OutputTensor(name, BY_NAME[datatype], array.shape, array)]
    )


def fed(memory: object) -> np.ndarray:
    request = InferenceRequest("m", 1)
    memory.feed(request)  # type: ignore[attr-defined]
    return request.inputs["S_IN"].array


def test_sch_062_the_state_output_of_a_request_is_the_state_input_of_the_next():
    memory = states_of(config(state())).start()
    request = InferenceRequest("m", 1)

    kept = memory.keep(request, answer(np.array([[7]], np.int32)))

    assert kept.error is None
    assert fed(memory).tolist() == [[7]]


def test_sch_062_each_sequence_has_a_state_of_its_own_and_starts_afresh():
    states = states_of(config(state()))
    first, second = states.start(), states.start()
    first.keep(InferenceRequest("m", 1), answer(np.array([[7]], np.int32)))

    assert fed(second).tolist() == [[0]]
    assert fed(states.start()).tolist() == [[0]]


def test_sch_063_without_initial_state_wildcards_become_1_and_the_memory_is_zero():
    assert fed(states_of(config(state("[2, -1, 3]"))).start()).shape == (1, 2, 1, 3)
    assert fed(states_of(config(state("[2, -1]"), 0)).start()).tolist() == [[0], [0]]


def test_sch_063_zero_data_has_the_dims_of_the_initial_state():
    memory = states_of(config(state("[-1]", initial=initial("zero_data: true", "[3]")))).start()

    assert fed(memory).tolist() == [[0, 0, 0]]


def test_sch_063_zero_data_of_strings_is_empty_text():
    text = config(state("[2]", "TYPE_STRING", initial("zero_data: true", "[2]", "TYPE_STRING")))

    assert fed(states_of(text).start()).tolist() == [[b"", b""]]


def test_sch_063_a_data_file_is_raw_row_major(tmp_path: Path):
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "ints").write_bytes(np.arange(6, dtype="<i4").tobytes())
    (tmp_path / "initial_state" / "words").write_bytes(
        serialize_bytes(np.array([b"a", b"bc"], dtype=object))
    )
    ints = config(state("[2, 3]", initial=initial('data_file: "ints"', "[2, 3]")))
    words = config(
        state("[2]", "TYPE_STRING", initial('data_file: "words"', "[2]", "TYPE_STRING")), 0
    )

    assert fed(states_of(ints, tmp_path).start()).tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert fed(states_of(words, tmp_path).start()).tolist() == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("filename", "told"),
    [
        ("../secret", "leaves the folder initial_state/"),
        ("missing", "No such file"),
        ("short", "holds 4 bytes, but dims [2] of TYPE_INT32 need 8"),
    ],
)
def test_sch_063_a_file_that_cannot_be_used_is_named(tmp_path: Path, filename: str, told: str):
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "short").write_bytes(b"1234")
    text = config(state("[2]", initial=initial(f'data_file: "{filename}"')))

    with pytest.raises(InvalidArgumentError, match="initial state of 'S_IN'") as raised:
        states_of(text, tmp_path)
    assert told in raised.value.message


def test_the_initial_state_cannot_be_written_by_a_model():
    array = fed(states_of(config(state())).start())

    with pytest.raises(ValueError, match="read-only"):
        array[:] = 1


def test_a_failed_request_leaves_the_state_as_it_was():
    memory = states_of(config(state())).start()
    memory.keep(InferenceRequest("m", 1), answer(np.array([[7]], np.int32)))
    failed = answer(np.array([[9]], np.int32))
    failed.error = BackendError("no")

    assert memory.keep(InferenceRequest("m", 1), failed) is failed
    assert fed(memory).tolist() == [[7]]


def test_a_state_that_is_not_what_the_config_promises_fails_the_request_and_is_not_kept():
    memory = states_of(config(state("[2]"))).start()
    request = InferenceRequest("m", 1)

    for array, datatype in (
        (np.zeros((1, 3), np.int32), "INT32"),
        (np.zeros((2, 2), np.int32), "INT32"),
        (np.zeros((1, 2), np.float32), "FP32"),
    ):
        refused = memory.keep(request, answer(array, datatype))
        assert refused.error is not None
        assert "its config is INT32 [1, 2]" in refused.error.message
    assert fed(memory).tolist() == [[0, 0]]


def test_a_row_of_a_batch_is_kept_without_the_batch():
    memory = states_of(config(state())).start()
    whole = np.arange(1000, dtype=np.int32).reshape(1000, 1)

    memory.keep(InferenceRequest("m", 1), answer(whole[3:4]))

    assert fed(memory).tolist() == [[3]]
    assert fed(memory).base is None
    assert memory.nbytes == 4


def test_a_state_may_grow_where_its_dims_are_any():
    memory = states_of(config(state("[-1]"))).start()
    memory.keep(InferenceRequest("m", 1), answer(np.array([[1, 2, 3]], np.int32)))

    assert fed(memory).tolist() == [[1, 2, 3]]


def test_sch_065_one_buffer_or_growable_memory_change_nothing_that_is_seen():
    flags = "use_same_buffer_for_input_output: true use_growable_memory: true"
    memory = states_of(config(state("[-1]", initial=flags))).start()
    memory.keep(InferenceRequest("m", 1), answer(np.array([[1, 2]], np.int32)))

    assert fed(memory).tolist() == [[1, 2]]


@pytest.mark.parametrize("name", ['input_name: "S_IN"', 'output_name: "S_OUT"'])
def test_a_state_with_one_name_only_has_no_effect(name: str):
    """Triton loads such a config."""
    states = states_of(config(state().replace(name, "")))
    request = InferenceRequest("m", 1)
    states.start().feed(request)

    assert not states
    assert request.inputs == {}
