"""PT2 archives of torch.export, served; what holds for compiled ones too is tried on these."""

from __future__ import annotations

import numpy as np
import pytest

from serving.errors import ErrorCode
from tests.serving.backends.pytorch.archives import (
    ACCUMULATE_CONFIG,
    EXAMPLE_CONFIG,
    HEAD,
    NET_CONFIG,
    SEED_INPUTS,
    SEED_OUTPUTS,
    io,
)
from tests.serving.backends.pytorch.pt2_checks import (
    check_batches,
    check_example,
    check_fixed_batch,
    check_joined_sizes,
    check_sequence,
    check_shared_weights,
    example_inputs,
    infer_error,
    ones,
    refusal,
)
from tests.serving.loading import load, outputs_of

# -- names


async def test_the_example_has_both_kinds_of_names(exported):
    """PT-09, PT-10, PT-11: its 6 inputs and 8 outputs, nested."""
    await check_example(exported / "example")


async def test_some_outputs_are_enough(exported):
    config = EXAMPLE_CONFIG.replace(io("output", SEED_OUTPUTS, "FP16", "1, 16"), "")
    model = await load(
        config + io("output", ["RESULT[DDD][KB]"], "FP16", "1, 16"), exported / "example"
    )

    assert list(await outputs_of(model, example_inputs(SEED_INPUTS))) == ["RESULT[DDD][KB]"]
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            HEAD + io("input", ["INPUT__0"]) + io("output", ["OUTPUT__0"], dims="3"),
            "configuration expects 1 inputs, model provides 2: declare INPUT__1 or ARGS[1]",
        ),
        (
            NET_CONFIG + io("input", ["ARGS[1]"], dims="2"),
            "inputs 'INPUT__1' and 'ARGS[1]' are both ARGS[1]",
        ),
        (NET_CONFIG.replace("INPUT__1", "mask"), "input 'mask' names none of its tensors"),
        (NET_CONFIG.replace("OUTPUT__1", "OUTPUT__5"), "output 'OUTPUT__5' is number 5"),
        (NET_CONFIG.replace("OUTPUT__1", "RESULT"), "output 'RESULT' names none of its tensors"),
        (
            NET_CONFIG.replace("TYPE_FP32", "TYPE_FP64", 1),
            "input 'INPUT__0': the config says TYPE_FP64, and the archive was exported for "
            "TYPE_FP32 [-1, 4]",
        ),
        (
            NET_CONFIG.replace("dims: [4]", "dims: [5]"),
            "the config says dims [5], that is [-1, 5] with the batch axis",
        ),
        (
            NET_CONFIG.replace(
                '"OUTPUT__0" data_type: TYPE_FP32', '"RESULT[0]" data_type: TYPE_INT8'
            ),
            "output 'RESULT[0]': configuration expects datatype TYPE_INT8, model provides",
        ),
        (NET_CONFIG.replace("TYPE_FP32", "TYPE_STRING", 1), "input 'INPUT__0' is TYPE_STRING"),
        (
            NET_CONFIG.replace(
                '"OUTPUT__1" data_type: TYPE_FP32', '"OUTPUT__1" data_type: TYPE_STRING'
            ),
            "output 'OUTPUT__1' is TYPE_STRING",
        ),
        (
            NET_CONFIG.replace('name: "INPUT__1"', 'name: "INPUT__1" optional: true'),
            "input 'INPUT__1' is optional",
        ),
        (
            NET_CONFIG + "model_transaction_policy { decoupled: true }",
            "pytorch answers once",
        ),
    ],
)
async def test_a_config_that_does_not_fit_is_refused_at_load(exported, config, words):
    """PT-09, PT-10, PT-14."""
    assert words in await refusal(config, exported / "net")


async def test_batching_with_nested_tensors_is_refused(exported):
    """PT-12, PT-14."""
    message = await refusal(EXAMPLE_CONFIG + "max_batch_size: 4", exported / "example")

    assert "batching is for models whose forward takes and returns plain tensors" in message
    assert "set max_batch_size: 0" in message


async def test_a_correlation_id_that_is_text_is_refused(exported):
    """PT-13, PT-14."""
    text = ACCUMULATE_CONFIG.replace("TYPE_INT64", "TYPE_STRING")

    message = await refusal(text, exported / "accumulate")

    assert "input 'INPUT__2' is TYPE_STRING" in message
    assert "a correlation ID of a numeric data_type" in message


# -- batches and sequences


async def test_an_archive_with_a_dynamic_first_dimension_batches(exported):
    """PT-12."""
    await check_batches(exported / "net")


async def test_an_archive_with_a_fixed_batch_refuses_other_sizes_at_run_time(exported, caplog):
    """PT-12: compiled code would read past the end of the tensor."""
    await check_fixed_batch(exported / "fixed", caplog)


async def test_sizes_that_follow_from_others_are_checked(exported):
    """PT-12."""
    await check_joined_sizes(exported / "joined")


async def test_sequences_have_controls_and_state_as_ordinary_tensors(exported):
    """PT-13."""
    await check_sequence(exported / "accumulate")


async def test_a_relation_of_sizes_that_the_program_requires_is_told(tmp_path):
    """PT-12: what the sizes of one input alone do not tell."""
    import torch

    class Added(torch.nn.Module):
        def forward(self, a, b):
            return a + b

    size = torch.export.Dim("size", min=2, max=64)
    program = torch.export.export(
        Added(), (torch.zeros(4), torch.zeros(4)), dynamic_shapes=({0: size}, {0: size})
    )
    (tmp_path / "1").mkdir()
    torch.export.save(program, str(tmp_path / "1" / "model.pt2"))
    text = (
        HEAD + io("input", ["ARGS[0]", "ARGS[1]"], dims="-1") + io("output", ["RESULT"], dims="-1")
    )
    model = await load(text, tmp_path)

    error = await infer_error(
        model, {"ARGS[0]": np.ones(3, np.float32), "ARGS[1]": np.ones(5, np.float32)}
    )

    assert error.code is ErrorCode.INVALID_ARG
    assert error.message.startswith("model 'm' refused the request: it requires ")
    assert "\n" not in error.message
    await model.drain_and_close()


# -- parameters and instances


async def test_parameters_are_checked(exported):
    """PT-16..19."""
    wrong = 'parameters { key: "INFERENCE_MODE" value { string_value: "maybe" } }'

    message = await refusal(NET_CONFIG + wrong, exported / "net")

    assert "parameter 'INFERENCE_MODE' is 'maybe'" in message


async def test_instances_that_share_weights_answer_alike(exported):
    """PT-14, PT-18."""
    await check_shared_weights(exported / "net")


async def test_a_model_that_keeps_its_own_device_runs(exported):
    """PT-23: KIND_MODEL."""
    model = await load(f"{NET_CONFIG}instance_group {{ kind: KIND_MODEL }}", exported / "net")

    assert (await outputs_of(model, ones(1)))["OUTPUT__1"].tolist() == [[6, 6]]
    await model.drain_and_close()
