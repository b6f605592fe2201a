"""A model repository for front-end tests: identities of some types, an ONNX model, labels."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

_IDENTITY = """\
backend: "identity"
max_batch_size: {batch}
input {{ name: "INPUT0" data_type: TYPE_{kind} dims: [ {dims} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_{kind} dims: [ {dims} ] {output} }}
"""


def write_repository(root: Path) -> Path:
    write_identities(root)
    _onnx(root / "plus_one")
    return root


def write_identities(root: Path) -> None:
    """Those that need no runtime."""
    _identity(root, "identity", "FP32", "-1", batch=8, extra="dynamic_batching { }\n")
    _identity(root, "strings", "STRING", "-1")
    _identity(root, "half", "FP16", "-1")
    _identity(root, "image", "FP32", "3, 224, 224", batch=4)
    labelled = _identity(root, "labelled", "FP32", "3", output='label_filename: "labels.txt"')
    (labelled / "labels.txt").write_text("cat\ndog\nfish\n")
    delay = 'parameters { key: "execute_delay_ms" value { string_value: "300" } }\n'
    _identity(root, "slow", "FP32", "-1", extra=delay)


def _identity(
    root: Path,
    name: str,
    kind: str,
    dims: str,
    *,
    batch: int = 0,
    output: str = "",
    extra: str = "",
) -> Path:
    model = root / name
    (model / "1").mkdir(parents=True)
    text = _IDENTITY.format(batch=batch, kind=kind, dims=dims, output=output)
    (model / "config.pbtxt").write_text(text + extra)
    return model


def _onnx(model: Path) -> None:
    """y = x + 1 on FP32 [batch, 4]; without a config.pbtxt."""
    (model / "1").mkdir(parents=True)
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        "plus_one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [one],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, str(model / "1" / "model.onnx"))
