"""What the Try it page is told about a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.catalog import try_it
from serving.errors import NotFoundError

METADATA: dict[str, Any] = {
    "name": "m",
    "versions": ["1"],
    "inputs": [
        {"name": "image", "datatype": "FP32", "shape": [-1, 3, 224, 224]},
        {"name": "text", "datatype": "BYTES", "shape": [-1, 2]},
    ],
    "outputs": [{"name": "label", "datatype": "FP32", "shape": ["-1", "10"]}],
}
CONFIG: dict[str, Any] = {
    "max_batch_size": 8,
    "input": [{"name": "image"}, {"name": "text", "optional": True}],
    "output": [{"name": "label", "label_filename": "labels.txt"}],
    "parameters": {"try_it": {"string_value": "text_line_ctc"}},
}


def test_inputs_carry_dims_without_the_batch_axis_and_an_example() -> None:
    image, text = try_it.description("m", METADATA, CONFIG)["inputs"]

    assert image["dims"] == [3, 224, 224]
    assert image["example_shape"] == [1, 3, 224, 224]
    assert image["example"] == ""
    assert text["optional"] is True
    assert json.loads(text["example"]) == ["text", "text"]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([-1, 3, -1, -1], [1, 3, 224, 224]),
        ([-1, -1, 1], [224, 224, 1]),
        ([-1, -1, -1], [1, 1, 1]),
        ([-1, 3, 48, -1], [1, 3, 48, 1]),
    ],
    ids=str,
)
def test_images_of_any_size_start_with_one_that_networks_take(
    shape: list[int], expected: list[int]
) -> None:
    inputs = [{"name": "x", "datatype": "FP32", "shape": shape}]

    [field] = try_it.description("m", {"inputs": inputs, "outputs": []}, {})["inputs"]

    assert field["example_shape"] == expected


def test_outputs_say_whether_they_have_labels() -> None:
    [label] = try_it.description("m", METADATA, CONFIG)["outputs"]

    assert label == {"name": "label", "datatype": "FP32", "shape": [-1, 10], "has_labels": True}


@pytest.mark.parametrize(
    ("parameters", "view"),
    [
        ({"try_it": {"string_value": "file_ends"}}, "file_ends"),
        ({"try_it": {"string_value": "../evil"}}, ""),
        ({}, ""),
    ],
)
def test_only_known_views_are_opened(parameters: dict[str, Any], view: str) -> None:
    assert try_it.view_of({"parameters": parameters}, METADATA) == view


READER: dict[str, Any] = {
    "inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [-1, 1]}],
    "outputs": [
        {"name": "TEXT", "datatype": "BYTES", "shape": [-1]},
        {"name": "BOX", "datatype": "FP32", "shape": [-1, 4, 2]},
    ],
}


def test_a_model_that_reads_images_is_known_by_its_signature() -> None:
    assert try_it.view_of({}, READER) == "image_text"
    without_boxes = READER | {"outputs": READER["outputs"][:1]}
    assert try_it.view_of({}, without_boxes) == ""
    assert try_it.view_of({"parameters": {"try_it": {"string_value": "form"}}}, READER) == ""


def test_labels_are_the_lines_of_the_file_blanks_included(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("<blank>\na\n \n", encoding="utf-8")

    assert try_it.labels(tmp_path, CONFIG, "label") == ["<blank>", "a", " "]


@pytest.mark.parametrize("filename", ["../secret", "missing.txt", ""])
def test_label_files_outside_the_model_are_refused(tmp_path: Path, filename: str) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    config = {"output": [{"name": "label", "label_filename": filename}]}

    with pytest.raises(NotFoundError):
        try_it.labels(model, config, "label")


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ({}, ""),
        ({"sequence_batching": {"direct": {}}}, "number"),
        ({"sequence_batching": {"iterative_sequence": True}}, ""),
        (
            {
                "sequence_batching": {
                    "control_input": [
                        {
                            "name": "ID",
                            "control": [
                                {
                                    "kind": "CONTROL_SEQUENCE_CORRID",
                                    "data_type": "TYPE_STRING",
                                }
                            ],
                        }
                    ]
                }
            },
            "text",
        ),
    ],
)
def test_the_form_knows_how_requests_name_their_sequence(config: dict[str, Any], ids: str) -> None:
    assert try_it.sequence_ids(config) == ids


def test_the_form_knows_models_that_answer_more_than_once() -> None:
    metadata: dict[str, Any] = {"inputs": [], "outputs": []}
    decoupled = {"model_transaction_policy": {"decoupled": True}}

    assert try_it.description("m", metadata, decoupled)["is_decoupled"] is True
    assert try_it.description("m", metadata, {})["is_decoupled"] is False
