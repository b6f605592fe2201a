"""PT2 archives before they run: completed configs, and what is refused without loading code."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

import pytest

from serving.backends.pytorch import pt2
from serving.config.protobuf import pb
from serving.errors import ServingError
from tests.serving.backends.pytorch.archives import HEAD, NET_CONFIG
from tests.serving.backends.pytorch.pt2_checks import refusal
from tests.serving.config import pt2_recordings
from tests.serving.loading import context_of


def recorded(directory, name, **metadata):
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.pt2").write_bytes(pt2_recordings.archive(name, **metadata))
    return directory


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


@pytest.mark.parametrize(("batch", "is_warned"), [(0, True), (8, False)])
def test_code_that_does_not_tell_which_sizes_follow_from_others_is_loaded_with_a_warning(
    tmp_path, caplog, batch, is_warned
):
    """PT-12: the batch alone is alike in all inputs."""
    recorded(tmp_path, "plain", AOTI_CPU_ISA="")
    text = NET_CONFIG.replace("max_batch_size: 8", f"max_batch_size: {batch}")
    if not batch:
        text = text.replace("dims: [", "dims: [-1, ")

    with caplog.at_level(logging.WARNING):
        pt2.Pt2Model(context_of(text, tmp_path))

    assert ("must not be -1 where one follows another" in caplog.text) is is_warned


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
