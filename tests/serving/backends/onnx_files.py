"""Small ONNX files, built where a test needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

Value = onnx.ValueInfoProto
FLOAT, STRING, BF16, BOOL = (
    TensorProto.FLOAT,
    TensorProto.STRING,
    TensorProto.BFLOAT16,
    TensorProto.BOOL,
)


def value(name: str, onnx_type: int, shape: Sequence[int | str] | None) -> Value:
    return helper.make_tensor_value_info(name, onnx_type, shape)


def write(
    directory: Path,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    nodes: Sequence[onnx.NodeProto],
    *,
    initializers: Sequence[onnx.TensorProto] = (),
    version: int = 1,
) -> Path:
    """`<directory>/<version>/model.onnx`."""
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = directory / str(version) / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def write_identity(
    directory: Path,
    onnx_type: int = FLOAT,
    shape: Sequence[int | str] | None = ("batch", 4),
) -> Path:
    """X -> Y."""
    return write(
        directory,
        [value("X", onnx_type, shape)],
        [value("Y", onnx_type, shape)],
        [helper.make_node("Identity", ["X"], ["Y"])],
    )


def write_add_sub(directory: Path, shape: Sequence[int | str] = ("batch", 4)) -> Path:
    """A + B -> SUM, A - B -> DIFFERENCE."""
    return write(
        directory,
        [value("A", FLOAT, shape), value("B", FLOAT, shape)],
        [value("SUM", FLOAT, shape), value("DIFFERENCE", FLOAT, shape)],
        [
            helper.make_node("Add", ["A", "B"], ["SUM"]),
            helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"]),
        ],
    )
