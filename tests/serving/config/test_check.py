"""The one call for console and command line: everything about a model directory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from serving.config.check import check_model
from serving.config.findings import Severity, errors_of, one_line
from serving.config.format import to_pbtxt
from serving.config.repair import apply_repair
from tests.serving.config.onnx_files import FLOAT, INT64, write_onnx

EXECUTE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
IO = (
    'input { name: "x" data_type: TYPE_FP32 dims: [3] }\n'
    'output { name: "y" data_type: TYPE_FP32 dims: [2] }\n'
)


def onnx_model(tmp_path, config, x=("n", 3), y=("n", 2), version=1):
    model = tmp_path / "m"
    write_onnx(model / str(version) / "model.onnx", {"x": (FLOAT, x)}, {"y": (FLOAT, y)})
    if config is not None:
        (model / "config.pbtxt").write_text(config)
    return model


def python_model(tmp_path, source, config='backend: "python"'):
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(source)
    (model / "config.pbtxt").write_text(config)
    return model


def the_error(check):
    errors = errors_of(check.findings)
    assert len(errors) == 1, [one_line(item) for item in errors]
    return errors[0]


def test_a_model_without_config_is_completed_from_its_file(tmp_path):
    check = check_model(onnx_model(tmp_path, None))

    assert errors_of(check.findings) == []
    assert check.effective.max_batch_size == 4
    assert list(check.effective.input[0].dims) == [3]
    assert check.effective.HasField("dynamic_batching")
    assert check.origins["input"] == "model"
    assert check.origins["backend"] == "default"


def test_fields_of_the_text_have_the_origin_file(tmp_path):
    check = check_model(onnx_model(tmp_path, "max_batch_size: 8\ninstance_group { }\n" + IO))

    assert check.origins["max_batch_size"] == "file"
    assert check.origins["input[0].dims"] == "file"
    assert check.origins["instance_group[0].kind"] == "default"
    assert check.config.backend == ""
    assert check.effective.backend == "onnxruntime"


def test_the_effective_config_as_text_gives_itself_again(tmp_path):
    model = onnx_model(tmp_path, None)
    effective = check_model(model).effective

    again = check_model(model, config_text=to_pbtxt(effective), strict=True)

    assert errors_of(again.findings) == []
    assert again.effective == effective


@pytest.mark.parametrize(
    ("config", "x", "place", "words", "hint"),
    [
        (
            "max_batch_size: 8\n" + IO,
            (1, 3),
            "config.pbtxt:1:1",
            "needs a first dimension of -1, 1/model.onnx says [1, 3]",
            "set max_batch_size: 0 and write dims: [1, 3]",
        ),
        (
            IO.replace("dims: [3]", "dims: [4]") + "max_batch_size: 8",
            ("n", 3),
            "config.pbtxt:1:",
            "[4], that is [-1, 4] with the batch axis (2 dimensions)",
            "write dims: [3]",
        ),
        (
            IO.replace("dims: [2]", "dims: [-1, 2]"),
            ("n", 3),
            "config.pbtxt:1:",
            "the config says [3] (1 dimension); 1/model.onnx says [-1, 3] (2 dimensions)",
            "set max_batch_size above 0, or write dims: [-1, 3]",
        ),
        (
            IO.replace("FP32 dims: [3]", "INT64 dims: [3]") + "max_batch_size: 8",
            ("n", 3),
            "config.pbtxt:1:",
            "the config says TYPE_INT64, 1/model.onnx says TYPE_FP32",
            "write data_type: TYPE_FP32",
        ),
        (
            'max_batch_size: 8 input { name: "z" data_type: TYPE_FP32 dims: [3] optional: true }'
            + IO.replace("[3] }", "[3] }\n"),
            ("n", 3),
            "config.pbtxt:1:",
            "unexpected inference input 'z'",
            "use a name that 1/model.onnx has",
        ),
    ],
)
def test_config_and_model_file_are_compared(tmp_path, config, x, place, words, hint):
    error = the_error(check_model(onnx_model(tmp_path, config, x)))

    assert one_line(error).startswith(place)
    assert words in error.message
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("left_out", "added"),
    [("data_type: TYPE_FP32", "data_type: TYPE_FP32"), ("dims: [3]", "dims: [3]")],
)
def test_what_the_config_leaves_out_the_model_file_mends(tmp_path, left_out, added):
    text = "max_batch_size: 8\n" + IO.replace(f" {left_out}", "", 1)
    model = onnx_model(tmp_path, text)

    error = the_error(check_model(model))

    assert error.repair.title == f"Add {added}"
    mended = apply_repair(text, error.repair)
    assert errors_of(check_model(model, config_text=mended).findings) == []


def test_missing_batching_is_pointed_out(tmp_path):
    errors = errors_of(check_model(onnx_model(tmp_path, IO)).findings)

    assert {item.hint for item in errors} == {
        "set max_batch_size above 0, or write dims: [-1, 3]",
        "set max_batch_size above 0, or write dims: [-1, 2]",
    }


def test_a_scalar_of_the_model_is_one_element_in_the_config(tmp_path):
    model = onnx_model(tmp_path, None, x=(), y=())

    check = check_model(model)
    assert errors_of(check.findings) == []
    assert list(check.effective.input[0].dims) == [1]
    assert not check.effective.input[0].HasField("reshape")

    assert errors_of(check_model(model, config_text=to_pbtxt(check.effective)).findings) == []


def test_one_value_for_each_item_is_a_reshape(tmp_path):
    check = check_model(onnx_model(tmp_path, None, x=("n",), y=("n",)))

    assert errors_of(check.findings) == []
    assert list(check.effective.input[0].dims) == [1]
    assert list(check.effective.input[0].reshape.shape) == []
    assert check.effective.input[0].HasField("reshape")


def test_an_input_that_the_config_forgets_is_an_error(tmp_path):
    model = tmp_path / "m"
    write_onnx(
        model / "1" / "model.onnx",
        {"x": (FLOAT, ["n", 3]), "ids": (INT64, ["n", 3])},
        {"y": (FLOAT, ["n", 2])},
    )

    error = the_error(check_model(model, config_text="max_batch_size: 4\n" + IO))

    assert "needs input 'ids' (INT64 [-1, 3])" in error.message


def test_text_beside_brain_floats_is_an_error_before_the_load(tmp_path):
    write_onnx(
        tmp_path / "m" / "1" / "model.onnx",
        {"text": (TensorProto.STRING, ["n", 1]), "bits": (TensorProto.BFLOAT16, ["n", 2])},
        {"out": (FLOAT, ["n", 2])},
    )

    error = the_error(check_model(tmp_path / "m"))

    assert error.message.startswith("1/model.onnx has tensors of text beside BF16")


def test_a_missing_weights_file_is_an_error(tmp_path):
    model = tmp_path / "m"
    write_onnx(
        model / "1" / "model.onnx",
        {"x": (FLOAT, ["n", 3])},
        {"y": (FLOAT, ["n", 3])},
        initializers={"w": np.ones(2, np.float32)},
        external="w.bin",
    )
    (model / "1" / "w.bin").unlink()

    assert "'w.bin'" in the_error(check_model(model)).message


def test_a_file_that_is_no_onnx_model_is_named_relative_to_the_model(tmp_path):
    model = onnx_model(tmp_path, None)
    (model / "1" / "model.onnx").write_bytes(b"<html>")

    message = the_error(check_model(model)).message

    assert message.startswith("'1/model.onnx' is not an ONNX model")


def test_a_misnamed_model_file_is_pointed_out(tmp_path):
    model = onnx_model(tmp_path, 'backend: "onnxruntime"')
    (model / "1" / "model.onnx").rename(model / "1" / "resnet.onnx")

    error = the_error(check_model(model))

    assert error.file == "1/model.onnx"
    assert "default_model_filename" in error.hint


def test_a_model_whose_backend_cannot_be_told_says_what_to_write(tmp_path):
    model = onnx_model(tmp_path, None)
    (model / "1" / "model.onnx").rename(model / "1" / "resnet.onnx")

    error = the_error(check_model(model))

    assert error.code == "VAL-02"
    assert 'default_model_filename: "resnet.onnx"' in error.hint


@pytest.mark.parametrize(
    ("filename", "backend", "written"),
    [
        ("xgboost.json", "fil", '"xgboost_json"'),
        ("model.txt", "fil", '"lightgbm"'),
        ("checkpoint.tl", "fil", '"treelite_checkpoint"'),
        ("model.json", "vllm", "vllm"),
        ("model.dali", "dali", "dali"),
    ],
)
def test_a_file_that_needs_a_config_comes_with_the_lines_to_write(
    tmp_path, filename, backend, written
):
    model = onnx_model(tmp_path, None)
    (model / "1" / "model.onnx").rename(model / "1" / filename)

    error = the_error(check_model(model))

    assert error.code == "VAL-02"
    assert error.hint == f'1/{filename} is a file for backend: "{backend}"'
    assert error.repair is not None
    assert written in apply_repair("", error.repair)


def test_a_text_that_does_not_parse_still_gets_the_layout_findings(tmp_path):
    model = onnx_model(tmp_path, "max_batch_size: ${B}")
    (model / "01").mkdir()

    check = check_model(model)

    assert check.effective is None
    assert {item.code for item in check.findings} == {"REP-004", "C03"}


@pytest.mark.parametrize(
    ("source", "severity", "words"),
    [
        ("class TritonPythonModel\n", Severity.ERROR, "syntax error"),
        ("class Model: pass\n", Severity.ERROR, "defines no class TritonPythonModel"),
        ("class TritonPythonModel:\n    pass\n", Severity.WARNING, "no method execute"),
        (EXECUTE, None, ""),
        ("from common import TritonPythonModel\n", None, ""),
        ("from common import *\n", None, ""),
        ("TritonPythonModel = make()\n", None, ""),
    ],
)
def test_python_sources_are_read_but_not_run(tmp_path, source, severity, words):
    check = check_model(python_model(tmp_path, source))

    found = [item for item in check.findings if item.severity is not Severity.NOTE]
    assert [item.severity for item in found] == ([severity] if severity else [])
    assert all(words in item.message and item.file == "1/model.py" for item in found)


def test_listed_versions_must_be_on_disk(tmp_path):
    policy = "version_policy { specific { versions: [1, 7] } }"
    model = onnx_model(tmp_path, policy)

    check = check_model(model)
    assert errors_of(check.findings) == []
    assert any("version 7 is listed" in item.message for item in check.findings)
    assert check.versions == [1]

    gone = check_model(model, config_text=policy.replace("1, 7", "7"))
    assert the_error(gone).code == "REP-006"


def test_every_served_version_is_looked_into(tmp_path):
    onnx_model(tmp_path, None, version=1, x=("n", 4))
    model = onnx_model(tmp_path, None, version=2)

    assert errors_of(check_model(model).findings) == []

    both = check_model(model, config_text="version_policy { all { } }")
    assert "1/model.onnx says [-1, 4]" in the_error(both).message


def test_a_missing_config_is_an_error_when_auto_complete_is_off(tmp_path):
    check = check_model(onnx_model(tmp_path, None), strict=True)

    assert any(item.code == "REP-003" for item in errors_of(check.findings))


def test_a_staged_directory_may_have_another_name(tmp_path):
    model = onnx_model(tmp_path, 'name: "resnet"')

    assert errors_of(check_model(model, name="resnet").findings) == []
    assert the_error(check_model(model)).code == "VAL-56"


def test_fields_of_a_load_request_have_the_origin_override(tmp_path):
    """AUT-09, REP-059."""
    model = onnx_model(tmp_path, "max_batch_size: 8\n" + IO)

    check = check_model(model, override='{"maxBatchSize": 2, "instance_group": [{"count": 3}]}')

    assert errors_of(check.findings) == []
    assert check.effective.max_batch_size == 2
    assert check.origins["max_batch_size"] == "override"
    assert check.origins["instance_group[0].count"] == "override"
    assert check.origins["instance_group[0].kind"] == "default"
    assert check.origins["input"] == "model"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("{", "Invalid config override"),
        ('{"max_batchsize": 1}', "max_batchsize"),
        ('{"max_batch_size": -1}', "non-negative"),
    ],
)
def test_mistakes_in_an_override_name_no_line(tmp_path, override, words):
    error = the_error(check_model(onnx_model(tmp_path, None), override=override))

    assert words in error.message
    assert (error.file, error.line, error.repair) == ("", 0, None)
