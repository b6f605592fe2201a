"""What the tensorflow backend reads and refuses without TensorFlow."""

from __future__ import annotations

import sys

import pytest

from serving.backends.tensorflow import TensorFlowBackend
from serving.backends.tensorflow_options import TensorFlowSettings, read_settings
from serving.errors import ServingError, UnavailableError
from tests.serving.backends.tree_models import parameter
from tests.serving.config import model_bytes
from tests.serving.loading import context_of

BARE = 'name: "m" backend: "tensorflow" platform: "tensorflow_savedmodel"\n'
FULL = BARE + (
    "max_batch_size: 8\n"
    'input { name: "x" data_type: TYPE_FP32 dims: [3] }\n'
    'output { name: "y" data_type: TYPE_FP32 dims: [2] }\n'
)
GRAPH = FULL.replace("savedmodel", "graphdef")


def write(directory, name="serving_default"):
    path = directory / "1" / "model.savedmodel" / "saved_model.pb"
    path.parent.mkdir(parents=True)
    content = model_bytes.saved_model({"x": (1, [-1, 3])}, {"y": (1, [-1, 2])}, name)
    path.write_bytes(content)


def refused(text, directory):
    with pytest.raises(ServingError) as caught:
        TensorFlowBackend().load(context_of(text, directory))
    return caught.value.message


def test_every_parameter_is_read(tmp_path):
    """TF-01."""
    (tmp_path / "1").mkdir()
    (tmp_path / "ops.json").write_text('{"init_ops": ["fill"]}')
    given = {
        "TF_NUM_INTRA_THREADS": "2",
        "TF_NUM_INTER_THREADS": "3",
        "TF_USE_PER_SESSION_THREADS": "On",
        "TF_GRAPH_TAG": "train",
        "TF_SIGNATURE_DEF": "classify",
        "TF_INIT_OPS_FILE": "ops.json",
        "MAX_SESSION_SHARE_COUNT": "4",
    }
    text = FULL + "".join(parameter(*item) for item in given.items())
    server = {"allow-soft-placement": "false", "gpu-memory-fraction": "0.5"}

    assert read_settings(context_of(text, tmp_path, backend_config=server)) == TensorFlowSettings(
        2, 3, True, "train", "classify", ("fill",), 4, False, 0.5
    )
    (tmp_path / "1" / "ops.json").write_text('{"init_ops": ["first"]}')
    assert read_settings(context_of(text, tmp_path)).init_operations == ("first",)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TF_NUM_INTER_THREADS", "9999999999", "it must be a whole number, 0 to 1024"),
        ("TF_NUM_INTRA_THREADS", "-1", "'TF_NUM_INTRA_THREADS' is '-1': it must be a whole number"),
        ("TF_USE_PER_SESSION_THREADS", "maybe", "it must be true or false"),
        ("TF_INIT_OPS_FILE", "none.json", "there is no such file in version folder 1"),
        ("TF_INIT_OPS_FILE", "../bad.json", "there is no such file"),
        ("TF_INIT_OPS_FILE", "bad.json", "must hold the names of operations"),
        ("TF_INIT_OPS_FILE", "worse.json", "worse.json is no JSON"),
        ("MAX_SESSION_SHARE_COUNT", "many", "it must be a whole number"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, name, value, words):
    """TF-01."""
    write(tmp_path)
    (tmp_path / "bad.json").write_text('{"init_ops": "fill"}')
    (tmp_path / "worse.json").write_text("{")

    assert words in refused(FULL + parameter(name, value), tmp_path)


@pytest.mark.parametrize("fraction", ["2", "much"])
def test_a_wrong_option_of_the_server_is_named(tmp_path, fraction):
    context = context_of(FULL, tmp_path, backend_config={"gpu-memory-fraction": fraction})

    with pytest.raises(ServingError, match="must be a number from 0 to 1"):
        read_settings(context)


def test_auto_complete_reads_the_file_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    write(tmp_path, "other")
    context = context_of(BARE + parameter("TF_SIGNATURE_DEF", "other"), tmp_path)

    TensorFlowBackend().auto_complete(context)

    done = context.config
    assert (done.max_batch_size, done.HasField("dynamic_batching")) == (4, True)
    assert (done.input[0].name, list(done.output[0].dims)) == ("x", [2])


def test_a_frozen_graph_must_be_described(tmp_path):
    with pytest.raises(ServingError, match="give `input` and `output` in the config"):
        TensorFlowBackend().auto_complete(
            context_of(BARE.replace("savedmodel", "graphdef"), tmp_path)
        )


def test_files_of_another_kind_are_refused(tmp_path):
    assert "unable to find '1/model.savedmodel'" in refused(FULL, tmp_path)
    assert "unable to find '1/model.graphdef'" in refused(GRAPH, tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.savedmodel").write_bytes(b"a file")
    assert "is no folder: a SavedModel is one" in refused(FULL, tmp_path)


def test_the_missing_runtime_is_told_with_the_command_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    write(tmp_path)

    with pytest.raises(UnavailableError, match=r"tensorflow backend.*pip install 'conch\[tenso"):
        TensorFlowBackend().load(context_of(FULL, tmp_path))
