"""PT2 archives of torch.export, served; what holds for compiled ones too is tried on these."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

import numpy as np
import pytest

from serving.backends.pytorch import pt2
from serving.config.protobuf import pb
from serving.errors import ErrorCode, ServingError
from tests.serving.backends.pytorch import archives
from tests.serving.backends.pytorch.archives import (
    ACCUMULATE_CONFIG,
    EXAMPLE_CONFIG,
    FIXED_CONFIG,
    HEAD,
    NET_CONFIG,
    ORDINAL_CONFIG,
    SEED_INPUTS,
    SEED_OUTPUTS,
    io,
)
from tests.serving.config import pt2_recordings
from tests.serving.loading import context_of, infer, load, outputs_of, request_of

KINDS = {
    "example": archives.EXAMPLE,
    "net": archives.NET,
    "fixed": archives.FIXED,
    "accumulate": archives.ACCUMULATE,
}


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Directories of models, by name."""
    root = tmp_path_factory.mktemp("pt2")
    for name, archive in KINDS.items():
        archive.export(root / name / "1")
    return root


async def refusal(text, directory):
    with pytest.raises(ServingError) as caught:
        await load(text, directory)
    message = caught.value.message
    assert "\n" not in message
    assert str(directory) not in message
    return message


def recorded(directory, name, **metadata):
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.pt2").write_bytes(pt2_recordings.archive(name, **metadata))
    return directory


def ones(rows):
    return {
        "INPUT__0": np.ones((rows, 4), np.float32),
        "INPUT__1": np.full((rows, 2), 3, np.float32),
    }


# -- names


def example_inputs(names):
    return {name: np.full((1, 16), 2**index, np.float16) for index, name in enumerate(names)}


async def check_example(directory):
    """By forward names and by ordinal names: what the documentation says of each."""
    model = await load(EXAMPLE_CONFIG, directory)
    by_name = await outputs_of(model, example_inputs(SEED_INPUTS))
    await model.drain_and_close()
    expected = dict(zip(SEED_OUTPUTS, [3, -1, 1, 2, 4, 8, 16, 32], strict=True))
    assert {name: float(array[0, 0]) for name, array in by_name.items()} == expected

    model = await load(ORDINAL_CONFIG, directory)
    by_index = await outputs_of(model, example_inputs([f"INPUT__{i}" for i in range(6)]))
    await model.drain_and_close()
    for index, name in enumerate(SEED_OUTPUTS):
        np.testing.assert_array_equal(by_index[f"OUTPUT__{index}"], by_name[name])


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


async def check_batches(directory):
    """One row, the most, and requests that share a batch."""
    model = await load(NET_CONFIG, directory)
    for rows in (1, 2, 8):
        outputs = await outputs_of(model, ones(rows))
        np.testing.assert_allclose(outputs["OUTPUT__0"], [[1.1, 1.7, 4.8]] * rows, rtol=1e-5)
        np.testing.assert_array_equal(outputs["OUTPUT__1"], np.full((rows, 2), 6))
    answer = await infer_error(model, ones(9))
    assert answer.message.startswith("inference request batch-size must be <= 8")
    await model.drain_and_close()


async def infer_error(model, inputs):
    answer = await infer(model, request_of(inputs))
    assert answer.error is not None
    return answer.error


async def test_an_archive_with_a_dynamic_first_dimension_batches(exported):
    """PT-12."""
    await check_batches(exported / "net")


async def check_fixed_batch(directory, caplog):
    with caplog.at_level(logging.WARNING):
        model = await load(FIXED_CONFIG, directory)
    assert "1/model.pt2 was exported for batches of exactly 2 (input 'ARGS[0]')" in caplog.text
    outputs = await outputs_of(model, {"ARGS[0]": np.ones((2, 4), np.float32)})
    assert outputs["RESULT"].tolist() == [[2] * 4] * 2
    for rows in (1, 3):
        error = await infer_error(model, {"ARGS[0]": np.ones((rows, 4), np.float32)})
        assert error.code is ErrorCode.INVALID_ARG
        assert f"input 'ARGS[0]' has shape [{rows}, 4]" in error.message
        assert "dimension 0 must be 2; it serves batches of that size only" in error.message
    await model.drain_and_close()


async def test_an_archive_with_a_fixed_batch_refuses_other_sizes_at_run_time(exported, caplog):
    """PT-12: compiled code would read past the end of the tensor."""
    await check_fixed_batch(exported / "fixed", caplog)


async def check_sequence(directory):
    """Start, correlation ID and state come as tensors, the new state goes as one."""
    model = await load(ACCUMULATE_CONFIG, directory)
    seen = []
    for sequence, value, start, end in [
        (7, 1, True, False),
        (7, 2, False, False),
        (9, 5, True, False),
        (7, 4, False, True),
        (7, 8, True, True),
    ]:
        outputs = await outputs_of(
            model,
            {"ARGS[0]": np.array([[value]], np.float32)},
            correlation_id=sequence,
            sequence_start=start,
            sequence_end=end,
        )
        seen.append(float(outputs["RESULT[1]"][0, 0]))
    assert seen == [7001, 7003, 9005, 7007, 7008]
    await model.drain_and_close()


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


# -- completion


def completed(directory, text=HEAD, **options):
    context = context_of(text, directory, **options)
    pt2.auto_complete(context)
    return context.config


def test_an_exported_program_completes_a_config(exported):
    """PT-14: other than compiled code it tells everything."""
    config = completed(exported / "net", backend_config={"default-max-batch-size": "16"})

    assert [(item.name, item.data_type, list(item.dims)) for item in config.input] == [
        ("INPUT__0", pb.TYPE_FP32, [4]),
        ("INPUT__1", pb.TYPE_FP32, [2]),
    ]
    assert [item.name for item in config.output] == ["OUTPUT__0", "OUTPUT__1"]
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (16, True)


def test_nested_tensors_are_completed_without_batching(exported):
    config = completed(exported / "example")

    assert (len(config.input), len(config.output), config.max_batch_size) == (6, 8, 0)


def test_compiled_code_says_what_to_declare(tmp_path):
    """PT-14: there is no completion, and the message spares looking it up."""
    with pytest.raises(ServingError) as caught:
        completed(recorded(tmp_path, "plain"))

    assert caught.value.message == (
        "1/model.pt2: compiled code does not tell the data types of its outputs, so that its "
        "config cannot be completed: declare the inputs INPUT__0 or ARGS[0] (TYPE_FP32 [-1, 4]), "
        "INPUT__1 or ARGS[1] (TYPE_FP32 [-1, 2]) and the outputs OUTPUT__0 or RESULT[0], "
        "OUTPUT__1 or RESULT[1]"
    )


def test_code_for_the_cpu_is_run_there_unless_the_config_says_otherwise(tmp_path):
    directory = recorded(tmp_path, "plain")

    assert completed(directory, NET_CONFIG).instance_group[0].kind == pb.ModelInstanceGroup.KIND_CPU
    asked = NET_CONFIG + "instance_group { kind: KIND_GPU }"
    assert completed(directory, asked).instance_group[0].kind == pb.ModelInstanceGroup.KIND_GPU


# -- what is looked at before code is loaded


@pytest.mark.parametrize(
    ("metadata", "config", "words"),
    [
        (
            {"AOTI_MACHINE": "s390x"},
            NET_CONFIG,
            "1/model.pt2: it was compiled for s390x, this machine is",
        ),
        ({"AOTI_PLATFORM": "win32"}, NET_CONFIG, "it was compiled for win32, this is linux"),
        (
            {"AOTI_DEVICE_KEY": "cuda"},
            NET_CONFIG,
            "it was compiled for cuda and an instance is to run on the CPU: set kind: KIND_GPU",
        ),
        ({}, NET_CONFIG.replace("dims: [4]", "dims: [5]"), "the config says dims [5]"),
    ],
)
async def test_code_that_cannot_run_here_is_not_loaded(
    tmp_path, monkeypatch, metadata, config, words
):
    """PT-09..14: the recorded archives have no code at all, so loading it would say so."""
    monkeypatch.setattr("serving.backends.pytorch.machine.cpu_flags", lambda: frozenset())

    assert words in await refusal(config, recorded(tmp_path, "plain", **metadata))


async def test_an_archive_whose_code_cannot_be_loaded_is_refused_in_a_few_words(
    tmp_path, monkeypatch
):
    """PT-29."""
    monkeypatch.setattr("serving.backends.pytorch.machine.cpu_flags", lambda: frozenset())

    message = await refusal(NET_CONFIG, recorded(tmp_path, "plain"))

    assert "failed to load model 'm': 1/model.pt2: " in message
    assert ".cpp:" not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no archive", "1/model.pt2 is not a PT2 archive: it is no zip archive"),
        (None, "unable to find '1/model.pt2' for model 'm'"),
    ],
)
async def test_a_missing_or_broken_archive_is_named(tmp_path, content, words):
    """PT-29."""
    (tmp_path / "1").mkdir()
    if content is not None:
        (tmp_path / "1" / "model.pt2").write_bytes(content)

    assert words in await refusal(NET_CONFIG, tmp_path)


async def test_a_torchscript_module_is_sent_to_its_platform(tmp_path):
    """PT-01."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.pt").write_bytes(b"no archive")
    text = NET_CONFIG + 'default_model_filename: "model.pt"'

    assert 'loaded with platform: "pytorch_libtorch"' in await refusal(text, tmp_path)


async def test_parameters_are_checked(exported):
    """PT-16..19."""
    wrong = 'parameters { key: "INFERENCE_MODE" value { string_value: "maybe" } }'

    message = await refusal(NET_CONFIG + wrong, exported / "net")

    assert "parameter 'INFERENCE_MODE' is 'maybe'" in message


async def test_instances_that_share_weights_answer_alike(exported):
    """PT-14, PT-18."""
    text = NET_CONFIG + (
        'parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "true" } }'
        "instance_group { count: 2 kind: KIND_CPU }"
    )
    model = await load(text, exported / "net")

    for _ in range(4):
        outputs = await outputs_of(model, ones(1))
        np.testing.assert_allclose(outputs["OUTPUT__0"], [[1.1, 1.7, 4.8]], rtol=1e-5)
    await model.drain_and_close()


async def test_a_model_that_keeps_its_own_device_runs(exported):
    """PT-23: KIND_MODEL."""
    model = await load(f"{NET_CONFIG}instance_group {{ kind: KIND_MODEL }}", exported / "net")

    assert (await outputs_of(model, ones(1)))["OUTPUT__1"].tolist() == [[6, 6]]
    await model.drain_and_close()


def test_reading_an_archive_imports_no_torch(exported):
    """What is wrong with an archive or its config is told on a server without it, too."""
    path = str(exported / "net" / "1" / "model.pt2")
    code = (
        "import sys; from pathlib import Path;"
        "from serving.config.signature_pt2 import read_pt2_signature;"
        f"print(len(read_pt2_signature(Path({path!r})).inputs));"
        "assert 'torch' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "2\n"


def test_the_archive_is_looked_for_under_another_name(exported, tmp_path):
    (tmp_path / "1").mkdir()
    shutil.copy(exported / "net" / "1" / "model.pt2", tmp_path / "1" / "net.pt2")

    config = completed(tmp_path, HEAD + 'default_model_filename: "net.pt2"')

    assert len(config.input) == 2
