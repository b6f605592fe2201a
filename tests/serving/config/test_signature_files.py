"""What OpenVINO, TensorFlow, PyTorch and tree model files say, read without their runtimes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.config.signature_openvino import read_openvino_signature
from serving.config.signature_pt2 import read_pt2_signature
from serving.config.signature_tensorflow import read_savedmodel_signature
from serving.config.signature_torch import Argument, read_torchscript_signature
from serving.config.signature_trees import read_tree_signature
from serving.errors import InvalidArgumentError
from tests.serving.config import model_bytes

TREES = Path(__file__).parents[2] / "data" / "trees"


def put(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def shown(tensors):
    return [(item.name, item.datatype.name, list(item.shape)) for item in tensors]


def test_openvino_tensors_have_the_names_of_their_ports(tmp_path):
    signature = read_openvino_signature(put(tmp_path, "model.xml", model_bytes.openvino()))

    assert shown(signature.inputs) == [("x", "FP32", [-1, 3])]
    assert shown(signature.outputs) == [("y", "FP32", [-1, 2])]
    assert signature.can_batch


@pytest.mark.parametrize(
    ("shape", "dims", "is_rank_known"),
    [("", [], True), ("1,3", [1, 3], True), ("...", [], False), ("1..8, 3", [-1, 3], True)],
)
def test_openvino_shapes(tmp_path, shape, dims, is_rank_known):
    file = put(tmp_path, "model.xml", model_bytes.openvino(shape=shape))

    (tensor,) = read_openvino_signature(file).inputs

    assert (list(tensor.shape), tensor.is_rank_known) == (dims, is_rank_known)


def test_openvino_types_that_no_request_carries_are_told(tmp_path):
    file = put(tmp_path, "model.xml", model_bytes.openvino(kind="u1"))

    assert read_openvino_signature(file).unsupported == {"x": "element type u1"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no element found"),
        ("<html></html>", "no layers"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><net/>', "document type"),
        ("<net><layers>", "no element found"),
    ],
)
def test_what_is_no_openvino_model_is_refused(tmp_path, content, words):
    with pytest.raises(InvalidArgumentError, match=f"not an OpenVINO model: .*{words}"):
        read_openvino_signature(put(tmp_path, "model.xml", content))


def test_saved_model_signatures(tmp_path):
    content = model_bytes.saved_model(
        {"tokens": (7, [-1, 8]), "mask": (10, None)}, {"logits": (1, [-1, 2])}
    )
    put(tmp_path, "model.savedmodel/saved_model.pb", content)

    signature = read_savedmodel_signature(tmp_path / "model.savedmodel")

    assert shown(signature.inputs) == [("mask", "BOOL", []), ("tokens", "BYTES", [-1, 8])]
    assert not signature.inputs[0].is_rank_known
    assert shown(signature.outputs) == [("logits", "FP32", [-1, 2])]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"<html>", "not a SavedModel"),
        (model_bytes.number(1, 1), "holds no graph"),
        (model_bytes.saved_model({}, {}, "train"), "no signature 'serving_default'.*: train"),
    ],
)
def test_what_is_no_saved_model_is_refused(tmp_path, content, words):
    put(tmp_path, "model.savedmodel/saved_model.pb", content)

    with pytest.raises(InvalidArgumentError, match=words):
        read_savedmodel_signature(tmp_path / "model.savedmodel")


@pytest.mark.parametrize(
    ("arguments", "result", "expected", "count"),
    [
        ("x: Tensor", "Tensor", [Argument("x", "Tensor")], 1),
        (
            "x: Tensor; n: Optional[Tensor]=None; k: int=1",
            "Tuple[Tensor, Tensor]",
            [Argument("x", "Tensor"), Argument("n", "Tensor", True), Argument("k", "int", True)],
            2,
        ),
        ("d: Dict[str, Tensor]", "List[str]", [Argument("d", "Dict[str, Tensor]")], 1),
        ("", "Dict[str, Tensor]", [], None),
    ],
)
def test_torchscript_tells_arguments_and_results(tmp_path, arguments, result, expected, count):
    file = put(tmp_path, "model.pt", model_bytes.torchscript(arguments, result))

    module = read_torchscript_signature(file)

    assert list(module.arguments) == expected
    assert (module.result, module.result_count) == (result, count)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (model_bytes.zipped({"a/b": b""}), "holds no data.pkl"),
        (model_bytes.zipped({"a/data.pkl": b"\x80\x02}."}), "weights only"),
        (model_bytes.zipped({"a/data.pkl": b"\x80\x02}.", "a/code/x.py": ""}), "no module class"),
        (
            model_bytes.zipped({"a/data.pkl": b"\x80\x02c__torch__\nN\n.", "a/code/x.py": ""}),
            "not a TorchScript module with a forward",
        ),
        (
            model_bytes.zipped(
                {"a/data.pkl": b"\x80\x02c__torch__\nN\n.", "a/code/__torch__.py": "class N(M):\n"}
            ),
            "no forward method",
        ),
    ],
)
def test_what_is_no_torchscript_module_is_refused(tmp_path, content, words):
    with pytest.raises(InvalidArgumentError, match=words):
        read_torchscript_signature(put(tmp_path, "model.pt", content))


def test_an_exported_program_tells_types_and_shapes(tmp_path):
    sizes = [{"as_expr": {"expr_str": "s0"}}, {"as_int": 4}]
    file = put(tmp_path, "model.pt2", model_bytes.exported_program(sizes))

    signature = read_pt2_signature(file)

    inputs = [("ARGS[0]", "FP32", [-1, 4]), ("KWARGS[mask]", "BOOL", [-1])]
    assert shown(signature.inputs) == inputs
    assert shown(signature.outputs) == [("RESULT", "FP32", [-1, 4])]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x", "no zip archive"),
        (model_bytes.zipped({"a": b""}), "holds no program"),
        (model_bytes.zipped({"n/models/model.json": "{}"}), "cannot be read"),
        (model_bytes.zipped({"n/models/model.json": "["}), "cannot be read"),
    ],
    ids=["no zip", "no member", "no program", "half a program"],
)
def test_what_is_no_pt2_archive_is_refused(tmp_path, content, words):
    with pytest.raises(InvalidArgumentError, match=words):
        read_pt2_signature(put(tmp_path, "model.pt2", content))


@pytest.mark.parametrize(
    ("model_type", "content", "classes"),
    [
        ("xgboost_json", json.dumps(model_bytes.xgboost(7, 3)), 3),
        ("xgboost_json", json.dumps(model_bytes.xgboost(7)), 1),
        ("xgboost_ubj", model_bytes.ubjson(model_bytes.xgboost(7, 3)), 3),
        ("lightgbm", model_bytes.lightgbm(7, 3), 3),
    ],
)
def test_trees_tell_features_and_classes(tmp_path, model_type, content, classes):
    trees = read_tree_signature(put(tmp_path, "model", content), model_type)

    assert (trees.features, trees.classes) == (7, classes)


@pytest.mark.parametrize(
    ("model_type", "content"),
    [
        ("xgboost_json", "{"),
        ("xgboost_json", "[]"),
        ("xgboost_json", "{}"),
        ("xgboost_json", "[" * 100_000),
        ("xgboost_json", '{"learner": {"gradient_booster": {"name": "gblinear"}}}'),
        ("xgboost_ubj", b""),
        ("xgboost_ubj", b"{"),
        ("xgboost_ubj", b"[" * 100),
        ("xgboost_ubj", b"[$Z#L" + b"\x7f" * 8),
        ("xgboost_ubj", b"[$d#L" + b"\xff" * 8),
        ("xgboost_ubj", b"?"),
        ("lightgbm", "pickle"),
        ("lightgbm", "tree\nnum_class=1\n"),
        ("treelite_checkpoint", b"?"),
        ("treelite_checkpoint", b"\x05" + bytes(60)),
    ],
)
def test_what_is_no_tree_model_is_refused(tmp_path, model_type, content):
    with pytest.raises(InvalidArgumentError, match=f"not a {model_type} model"):
        read_tree_signature(put(tmp_path, "model", content), model_type)


@pytest.mark.parametrize(
    ("name", "features", "classes", "is_classifier"),
    [
        ("xgboost_binary", 5, 1, True),
        ("sklearn_three", 5, 3, True),
        ("sklearn_regression", 5, 1, False),
    ],
)
def test_treelite_checkpoints_tell_features_and_classes(name, features, classes, is_classifier):
    path = TREES / name / "checkpoint.tl"

    trees = read_tree_signature(path, "treelite_checkpoint")

    found = (trees.features, trees.classes, trees.is_classifier)
    assert found == (features, classes, is_classifier)


def test_checkpoints_of_treelite_3_are_left_to_treelite(tmp_path):
    old = put(tmp_path, "c.tl", b"\x03\0\0\0\x09" + bytes(60))
    assert read_tree_signature(old, "treelite_checkpoint") is None


def test_a_missing_file_is_told_for_each_kind(tmp_path):
    for read in (
        read_openvino_signature,
        read_savedmodel_signature,
        read_torchscript_signature,
        read_pt2_signature,
        lambda path: read_tree_signature(path, "lightgbm"),
    ):
        with pytest.raises(InvalidArgumentError, match="cannot be read"):
            read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{i\x01a\x00", "unknown mark"),
        (b"{\x00", "no number at byte 2"),
        (b"{}", "has no 'learner'"),
    ],
)
def test_a_damaged_ubjson_file_is_told_in_words(tmp_path, content, words):
    path = tmp_path / "xgboost.ubj"
    path.write_bytes(content)

    with pytest.raises(InvalidArgumentError, match=f"is not a xgboost_ubj model: .*{words}"):
        read_tree_signature(path, "xgboost_ubj")
