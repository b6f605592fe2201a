"""OpenVINO models, written where a test needs them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.serving.backends import onnx_files

# Importing openvino reports the import to its maker where this package can be imported.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402


def write_ir(onnx: Path) -> Path:
    """The ONNX file as model.xml and model.bin in its place."""
    path = onnx.with_name("model.xml")
    openvino.serialize(openvino.Core().read_model(onnx), path)
    onnx.unlink()
    return path


def write_add_sub(directory: Path, shape: Sequence[int | str] = ("batch", 4)) -> Path:
    """A + B -> SUM, A - B -> DIFFERENCE."""
    return write_ir(onnx_files.write_add_sub(directory, shape))


def write_running_sum(directory: Path) -> None:
    """Y is X added to the state of the model, which Y becomes; shape [1, 2]."""
    operations = importlib.import_module("openvino.opset13")
    util = importlib.import_module("openvino.op.util")
    x = operations.parameter([1, 2], np.float32, name="X")
    x.output(0).set_names({"X"})
    info = util.VariableInfo()
    info.data_shape = openvino.PartialShape([1, 2])
    info.data_type = openvino.Type.f32
    info.variable_id = "sum"
    variable = util.Variable(info)
    before = operations.read_value(operations.constant(np.zeros((1, 2), np.float32)), variable)
    total = operations.add(before, x)
    total.output(0).set_names({"Y"})
    model = openvino.Model(
        [operations.result(total)], [operations.assign(total, variable)], [x], "running_sum"
    )
    (directory / "1").mkdir()
    openvino.serialize(model, directory / "1" / "model.xml")
