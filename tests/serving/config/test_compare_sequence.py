"""Controls and states are inputs and outputs of the model file that `input` does not list."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto

from serving.config.check import ModelCheck, check_model
from serving.config.findings import Severity
from tests.serving.config.onnx_files import FLOAT, write_onnx

STATE = (
    'state { input_name: "S" output_name: "S_NEXT" data_type: TYPE_FP32 dims: [2, -1] '
    'initial_state { name: "i" data_type: TYPE_FP32 dims: [2, 1] zero_data: true } }'
)
START = (
    'control_input { name: "START" '
    "control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }"
)
ID = 'control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }'
IO = (
    'input { name: "X" data_type: TYPE_FP32 dims: [3] } '
    'output { name: "Y" data_type: TYPE_FP32 dims: [3] } '
)


def checked(tmp_path: Path, sequence: str, *, io: str = "", batch: int = 4) -> ModelCheck:
    write_onnx(
        tmp_path / "m" / "1" / "model.onnx",
        {
            "X": (FLOAT, ["n", 3]),
            "START": (FLOAT, ["n", 1]),
            "ID": (TensorProto.UINT64, ["n", 1]),
            "S": (FLOAT, ["n", 2, "k"]),
        },
        {"Y": (FLOAT, ["n", 3]), "S_NEXT": (FLOAT, ["n", 2, "k"])},
    )
    text = (
        f'backend: "onnxruntime" max_batch_size: {batch} {io}\nsequence_batching {{ {sequence} }}'
    )
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    return check_model(tmp_path / "m")


def grave(check: ModelCheck) -> list[tuple[str, str]]:
    return [
        (item.field, item.message) for item in check.findings if item.severity is not Severity.NOTE
    ]


def test_auto_complete_lists_neither_controls_nor_states(tmp_path):
    """SCH-060, SCH-062."""
    check = checked(tmp_path, START + ID + STATE)

    assert grave(check) == []
    assert [item.name for item in check.effective.input] == ["X"]
    assert [item.name for item in check.effective.output] == ["Y"]


def test_a_config_that_lists_neither_agrees_with_the_file(tmp_path):
    assert grave(checked(tmp_path, START + ID + STATE, io=IO)) == []


def test_a_state_may_be_an_output_as_well(tmp_path):
    """SCH-064."""
    io = IO + 'output { name: "S_NEXT" data_type: TYPE_FP32 dims: [2, -1] }'

    assert grave(checked(tmp_path, START + ID + STATE, io=io)) == []


def test_an_input_that_is_neither_given_nor_a_control_is_missed(tmp_path):
    ((field, message),) = grave(checked(tmp_path, START + STATE, io=IO))

    assert field == "input"
    assert "needs input 'ID'" in message


CONTROL = "sequence_batching.control_input[0]"
FIRST = "sequence_batching.state[0]"


@pytest.mark.parametrize(
    ("old", "new", "field", "told"),
    [
        ('name: "START"', 'name: "STAR"', f"{CONTROL}.name", "input 'STAR'"),
        ("fp32_false_true", "int32_false_true", CONTROL, "TYPE_INT32"),
        ("TYPE_UINT64", "TYPE_INT64", "sequence_batching.control_input[1]", "TYPE_UINT64"),
        ('"S_NEXT"', '"S_NEW"', f"{FIRST}.output_name", "output 'S_NEW'"),
        ('input_name: "S"', 'input_name: "T"', f"{FIRST}.input_name", "input 'T'"),
        ("dims: [2, -1]", "dims: [-1]", f"{FIRST}.dims", "says [-1, 2, -1]"),
    ],
)
def test_what_the_file_does_not_have_like_this_is_found_at_its_place(
    tmp_path, old, new, field, told
):
    sequence = (START + ID + STATE).replace(old, new, 1)

    found = dict(grave(checked(tmp_path, sequence, io=IO)))

    assert told in found[field]


@pytest.mark.parametrize(
    ("old", "field"),
    [
        ('input_name: "S"', "input_name"),
        ('output_name: "S_NEXT"', "output_name"),
        ("data_type: TYPE_FP32 dims: [2, -1]", "data_type"),
        ("dims: [2, -1]", "dims"),
    ],
)
def test_a_state_says_its_names_type_and_dims(tmp_path, old, field):
    found = grave(checked(tmp_path, START + ID + STATE.replace(old, "", 1), io=IO))

    assert any(f"'{field}'" in message for place, message in found if place == FIRST)


@pytest.mark.parametrize(
    ("name", "dims", "field"),
    [("S", "[2, -1]", f"{FIRST}.input_name"), ("START", "[1]", f"{CONTROL}.name")],
)
def test_what_callers_must_send_too_is_pointed_out(tmp_path, name, dims, field):
    io = IO + f'input {{ name: "{name}" data_type: TYPE_FP32 dims: {dims} }}'

    found = grave(checked(tmp_path, START + ID + STATE, io=io))

    assert [place for place, _ in found] == [field]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"S"', '"START"', "sequence_batching.state[1].input_name"),
        ('"S"', '"T"', "sequence_batching.state[1].output_name"),
    ],
)
def test_states_that_get_into_each_others_way_are_pointed_out(tmp_path, old, new, field):
    found = grave(checked(tmp_path, START + ID + STATE + STATE.replace(old, new), io=IO))

    assert field in dict(found)


def test_sch_065_growable_memory_needs_one_buffer(tmp_path):
    growable = STATE.replace("initial_state", "use_growable_memory: true initial_state", 1)
    both = growable.replace("initial_state", "use_same_buffer_for_input_output: true initial_state")

    assert [field for field, _ in grave(checked(tmp_path, START + ID + growable, io=IO))] == [
        f"{FIRST}.use_growable_memory"
    ]
    assert grave(checked(tmp_path, START + ID + both, io=IO)) == []
