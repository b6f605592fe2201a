"""Model and version directories, and what is said of a wrong layout."""

from __future__ import annotations

import pytest

from serving.config.findings import Severity
from serving.errors import InvalidArgumentError
from serving.repository.layout import (
    check_layout,
    check_model_files,
    scan_model,
    scan_repository,
)


def make(root, *paths):
    for name in paths:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


def test_only_integer_named_directories_are_versions(tmp_path):
    make(tmp_path, "m/1/", "m/2/", "m/10/", "m/03/", "m/v4/", "m/.ipynb_checkpoints/", "m/5")

    model = scan_model(tmp_path / "m")

    assert model.versions == [1, 2, 10]
    assert [entry.name for entry in model.ignored] == [".ipynb_checkpoints", "03", "5", "v4"]
    assert {item.severity for item in check_layout(model)} == {Severity.WARNING}


def test_reserved_directories_cause_no_warning(tmp_path):
    make(tmp_path, "m/1/", "m/warmup/raw", "m/initial_state/a", "m/configs/x.pbtxt")

    assert check_layout(scan_model(tmp_path / "m")) == []


def test_zero_alone_is_a_version_and_a_huge_number_is_none(tmp_path):
    make(tmp_path, "m/0/", "m/9223372036854775807/", "m/9223372036854775808/", "m/٣/", "m/-1/")

    assert scan_model(tmp_path / "m").versions == [0, 9223372036854775807]


def test_every_directory_of_the_repository_is_a_model(tmp_path):
    make(tmp_path, "b/1/model.onnx", "a/config.pbtxt", "notes.txt", ".staging/x/1/")

    models = scan_repository(tmp_path)

    assert [model.name for model in models] == ["a", "b"]
    assert models[0].config_path == tmp_path / "a" / "config.pbtxt"
    assert models[1].model_files == {1: ["model.onnx"]}


def test_an_empty_repository_is_legal(tmp_path):
    assert scan_repository(tmp_path) == []


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_repository_must_be_a_directory(tmp_path, name):
    make(tmp_path, "file")

    with pytest.raises(InvalidArgumentError, match="not a valid directory"):
        scan_repository(tmp_path / name)


@pytest.mark.parametrize(
    ("paths", "hint"),
    [
        (["m/"], "create 'm/1/'"),
        (["m/model.onnx"], "move 'model.onnx' into a version directory"),
        (["m/01/model.onnx"], "leading zero; name it '1'"),
        (["m/inner/1/model.onnx"], "one level too deep"),
    ],
)
def test_a_model_without_a_version_says_why(tmp_path, paths, hint):
    make(tmp_path, *paths)

    errors = [item for item in check_layout(scan_model(tmp_path / "m")) if item.code == "REP-006"]

    assert "at least one version must be available" in errors[0].message
    assert hint in errors[0].hint


@pytest.mark.parametrize("name", ["config.pbtxt.txt", "Config.pbtxt", "config.prototxt"])
def test_a_misnamed_config_is_pointed_at(tmp_path, name):
    make(tmp_path, "m/1/", f"m/{name}")

    (finding,) = check_layout(scan_model(tmp_path / "m"))

    assert f"the nearest file is '{name}'" in finding.message


def test_a_config_inside_a_version_is_pointed_at(tmp_path):
    make(tmp_path, "m/1/config.pbtxt")

    (finding,) = check_layout(scan_model(tmp_path / "m"))

    assert "'1/config.pbtxt'" in finding.message


@pytest.mark.parametrize(
    ("paths", "hint"),
    [
        (["m/1/resnet.onnx"], 'default_model_filename: "resnet.onnx"'),
        (["m/1/a.onnx", "m/1/b.onnx"], "one of a.onnx, b.onnx"),
        (["m/1/1/model.onnx"], "move '1/1/model.onnx' up"),
        (["m/1/", "m/model.onnx"], "move 'model.onnx' from the model directory into '1/'"),
        (["m/1/weights.bin"], "put the model file there"),
    ],
)
def test_a_missing_model_file_names_the_nearest_candidate(tmp_path, paths, hint):
    make(tmp_path, *paths)

    (finding,) = check_model_files(scan_model(tmp_path / "m"), versions=[1], filename="model.onnx")

    assert finding.file == "1/model.onnx"
    assert hint in finding.hint


def test_a_present_model_file_is_fine_as_file_or_directory(tmp_path):
    make(tmp_path, "m/1/model.onnx", "m/2/model.onnx/model.onnx")
    model = scan_model(tmp_path / "m")

    assert check_model_files(model, versions=[1, 2], filename="model.onnx") == []
    assert check_model_files(model, versions=[2], filename="model.onnx", may_be_directory=False)
