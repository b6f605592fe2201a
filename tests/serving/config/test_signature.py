"""Reading the outline of an ONNX file."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, save_model

from serving.config.signature import read_onnx_signature
from serving.errors import InvalidArgumentError
from tests.serving.config.onnx_files import FLOAT, INT64, write_onnx


def shapes(tensors):
    return {item.name: (item.datatype.name, item.shape) for item in tensors}


def test_names_types_and_shapes_are_read(tmp_path):
    path = write_onnx(
        tmp_path / "m.onnx",
        {"ids": (INT64, ["batch", None]), "x": (FLOAT, [1, 3, 224, 224])},
        {"y": (FLOAT, ["batch", 10]), "s": (FLOAT, [])},
    )

    signature = read_onnx_signature(path)

    assert shapes(signature.inputs) == {
        "ids": ("INT64", (-1, -1)),
        "x": ("FP32", (1, 3, 224, 224)),
    }
    assert shapes(signature.outputs) == {"y": ("FP32", (-1, 10)), "s": ("FP32", ())}
    assert not signature.can_batch


@pytest.mark.parametrize(
    ("element", "name"),
    [
        (TensorProto.BOOL, "BOOL"),
        (TensorProto.STRING, "BYTES"),
        (TensorProto.FLOAT16, "FP16"),
        (TensorProto.BFLOAT16, "BF16"),
        (TensorProto.DOUBLE, "FP64"),
        (TensorProto.UINT64, "UINT64"),
        (TensorProto.INT8, "INT8"),
    ],
)
def test_every_type_has_its_name(tmp_path, element, name):
    path = write_onnx(tmp_path / "m.onnx", {"x": (element, [1])}, {"y": (element, [1])})

    assert read_onnx_signature(path).inputs[0].datatype.name == name


def test_initializers_are_optional_inputs(tmp_path):
    path = write_onnx(
        tmp_path / "m.onnx",
        {"x": (FLOAT, ["n", 2]), "w": (FLOAT, [2])},
        {"y": (FLOAT, ["n", 2])},
        initializers={"w": np.ones(2, np.float32)},
    )

    signature = read_onnx_signature(path)

    assert [item.name for item in signature.inputs] == ["x"]
    assert [item.name for item in signature.optional_inputs] == ["w"]
    assert signature.can_batch


def test_external_weights_are_named_and_a_model_may_be_a_directory(tmp_path):
    write_onnx(
        tmp_path / "model.onnx" / "model.onnx",
        {"x": (FLOAT, [2])},
        {"y": (FLOAT, [2])},
        initializers={"w": np.ones(2, np.float32)},
        external="weights.bin",
    )

    signature = read_onnx_signature(tmp_path / "model.onnx")

    assert signature.external_files == ("weights.bin",)


def test_an_unknown_rank_and_a_scalar_are_told_apart(tmp_path):
    path = write_onnx(tmp_path / "m.onnx", {"x": (FLOAT, None)}, {"y": (FLOAT, [])})

    signature = read_onnx_signature(path)

    assert not signature.inputs[0].is_rank_known
    assert signature.outputs[0].is_rank_known


def test_what_no_request_can_carry_is_told(tmp_path):
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1])
    value = helper.make_tensor_value_info("c", TensorProto.COMPLEX64, [1])
    node = helper.make_node("Identity", ["s"], ["c"])
    path = tmp_path / "m.onnx"
    save_model(helper.make_model(helper.make_graph([node], "g", [sequence], [value])), path)

    assert set(read_onnx_signature(path).unsupported) == {"s", "c"}


def test_weights_are_not_read(tmp_path):
    path = write_onnx(
        tmp_path / "m.onnx",
        {"x": (FLOAT, [2])},
        {"y": (FLOAT, [2])},
        initializers={"w": np.ones(3_000_000, np.float32)},
    )
    raw = path.read_bytes()
    start = raw.index(np.ones(8, np.float32).tobytes())
    path.write_bytes(raw[:start] + b"\xff" * 12_000_000 + raw[start + 12_000_000 :])

    assert [item.name for item in read_onnx_signature(path).inputs] == ["x"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "is not an ONNX model"),
        (b"\x00" * 64, "is not an ONNX model"),
        (b"\x08\x07", "holds no graph"),
        (b"\x3a\xff\xff\xff\xff\x0f", "truncated"),
        (b"\xff" * 32, "is not an ONNX model"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, content, words):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(InvalidArgumentError, match=words) as caught:
        read_onnx_signature(path)

    assert str(path) in caught.value.message


def test_a_truncated_model_is_refused(tmp_path):
    path = write_onnx(tmp_path / "m.onnx", {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])})
    raw = path.read_bytes()

    for size in range(1, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(InvalidArgumentError):
            read_onnx_signature(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        read_onnx_signature(tmp_path / "model.onnx")
