"""TorchScript modules, served: which input is which argument, which result is which output."""

from __future__ import annotations

import logging

import pytest

from serving.errors import ErrorCode, FailureReason
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import config, failure, io, refused, row, served
from tests.serving.loading import outputs_of


async def test_inputs_named_as_the_arguments_of_forward_are_those(tmp_path):
    """PT-02: whatever their order in the config."""
    model = await served(tmp_path, modules.Places(), config("cab", ["OUT__0"]))

    outputs = await outputs_of(model, {"a": row(1), "b": row(2), "c": row(3)})

    assert outputs["OUT__0"].tolist() == [[123]]
    await model.drain_and_close()


async def test_names_with_an_index_tell_the_position(tmp_path):
    """PT-03: for inputs and outputs."""
    text = config(["X__2", "Y__0", "Z__1"], ["LAST__1", "SUM__0"])
    model = await served(tmp_path, modules.Places(), text)

    outputs = await outputs_of(model, {"Y__0": row(1), "Z__1": row(2), "X__2": row(3)})

    assert outputs["SUM__0"].tolist() == [[123]]
    assert outputs["LAST__1"].tolist() == [[3]]
    await model.drain_and_close()


async def test_one_name_without_a_convention_makes_the_order_count(tmp_path, caplog):
    """PT-04: for its whole side, and the log says so."""
    with caplog.at_level(logging.WARNING, logger="serving.backends.pytorch"):
        model = await served(
            tmp_path, modules.Places(), config(["X__2", "c", "odd"], ["LAST__1", "other"])
        )

    outputs = await outputs_of(model, {"X__2": row(1), "c": row(2), "odd": row(3)})

    assert outputs["LAST__1"].tolist() == [[123]]
    assert outputs["other"].tolist() == [[3]]
    said = [record.getMessage() for record in caplog.records]
    assert any("input 'c' or previous input(s)" in text for text in said)
    assert all("Falling back to enforcing strict ordering" in text for text in said)
    assert len(said) == 2
    await model.drain_and_close()


async def test_a_dictionary_has_the_names_of_the_config_as_keys(tmp_path):
    """PT-05."""
    model = await served(tmp_path, modules.Mapped(), config("BA", ["OUT"]))

    outputs = await outputs_of(model, {"A": row(5), "B": row(3)})

    assert outputs["OUT"].tolist() == [[2]]
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("module", "inputs", "words"),
    [
        (modules.TwoMaps, "ab", "Multiple inputs of kind DictType were detected"),
        (modules.MapAndTensor, "ab", "An input of type 'Dict[str, Tensor]' was detected"),
        (modules.Rate, ["x", "rate"], "An input of type 'int' was detected"),
        (modules.Sums, ["left"], "configuration expects 1 inputs, model provides 2"),
        (modules.One, "ab", "configuration expects 2 inputs, model provides 1"),
        (modules.Sums, ["I__0", "I__2"], "input 'I__2' is number 2, counted from 0"),
        (modules.Sums, ["I__0", "J__0"], "inputs 'I__0' and 'J__0' are both argument 0"),
        (modules.Shout, ["words"], "TYPE_FP32 in the configuration, and argument 'words'"),
    ],
)
async def test_arguments_that_the_config_cannot_mean_fail_the_load(tmp_path, module, inputs, words):
    """PT-02, PT-03, PT-05."""
    error = await refused(tmp_path, module(), config(inputs, ["OUT__0"]))

    assert words in error.message
    assert "'m'" in error.message


async def test_arguments_with_a_default_may_stay_out_of_the_config(tmp_path):
    """PT-02."""
    model = await served(tmp_path, modules.Defaults(), config("x", ["OUT__0"]))

    assert (await outputs_of(model, {"x": row(2)}))["OUT__0"].tolist() == [[6]]
    await model.drain_and_close()


async def test_an_optional_input_is_left_to_the_default_of_its_argument(tmp_path):
    """PT-02."""
    bias = 'input { name: "bias" data_type: TYPE_FP32 dims: [-1] optional: true }\n'
    model = await served(tmp_path, modules.Defaults(), config("x", ["OUT__0"], bias))

    assert (await outputs_of(model, {"x": row(2)}))["OUT__0"].tolist() == [[6]]
    both = await outputs_of(model, {"x": row(2), "bias": row(1)})
    assert both["OUT__0"].tolist() == [[7]]
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (modules.Listed, "output must be of type Tensor, List[str] or Tuple"),
        (modules.Keyed, "received Dict"),
        (modules.Scalar, "received float"),
        (modules.ListedInside, "output at index 1 must be of type Tensor, List[str]"),
    ],
)
async def test_results_that_are_no_tensors_are_refused_when_they_come(tmp_path, module, words):
    """PT-06: the model loads."""
    model = await served(tmp_path, module(), config("x", ["OUT__0"]))

    error = await failure(model, {"x": row(1)})

    assert error.message.startswith("PyTorch execute failure: ")
    assert words in error.message
    assert error.code is ErrorCode.INTERNAL
    await model.drain_and_close()


async def test_an_output_beyond_the_results_is_an_error_of_the_request(tmp_path):
    """PT-06: it says how many there are."""
    model = await served(tmp_path, modules.One(), config("x", ["OUTPUT__1"]))

    error = await failure(model, {"x": row(1)})

    assert error.message.startswith(
        "The output OUTPUT__1 in the model configuration refers to an output index which doesn't "
        "exist. This model has 1 outputs"
    )
    await model.drain_and_close()


async def test_an_output_of_another_type_is_an_error_of_the_request(tmp_path):
    """PT-06."""
    text = config("x", [], io("output", "OUTPUT__0", datatype="INT32"))
    model = await served(tmp_path, modules.One(), text)

    error = await failure(model, {"x": row(1)})

    assert error.message.startswith("configuration expects datatype TYPE_INT32 for output")
    assert error.message.endswith("model provides TYPE_FP32")
    assert error.failure_reason is FailureReason.BACKEND
    await model.drain_and_close()


REMEMBERS = """sequence_batching {
  control_input {
    name: "START__1" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }
  }
  state { input_name: "STATE_IN__2" output_name: "STATE_OUT__1" data_type: TYPE_FP32 dims: [1] }
}
"""


async def test_states_of_a_sequence_stay_in_the_server(tmp_path):
    """PT-07, SCH-062."""
    text = config(["X__0"], ["SUM__0"], REMEMBERS)
    model = await served(tmp_path, modules.Remembers(), text)

    found = []
    for value in (1, 2, 3):
        answer = await outputs_of(
            model, {"X__0": row(value)}, correlation_id=9, sequence_start=value == 1
        )
        found.append(answer["SUM__0"].item())

    assert found == [1, 3, 6]
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("STATE_IN__2", "state", "state 'state' does not follow the <name>__<index>"),
        ("STATE_OUT__1", "out_1", "state 'out_1' does not follow the <name>__<index>"),
        ("X__0", "x", "not all inputs/outputs follow the <name>__<index>"),
        ("SUM__0", "sum", "not all inputs/outputs follow the <name>__<index>"),
        ("START__1", "begin", "input 'begin' does not follow <name>__<index>"),
    ],
)
async def test_names_around_a_state_must_have_an_index(tmp_path, old, new, words):
    """PT-07."""
    text = config(["X__0"], ["SUM__0"], REMEMBERS).replace(f'"{old}"', f'"{new}"')

    assert words in (await refused(tmp_path, modules.Remembers(), text)).message
