"""OpenVINO models, written where a test needs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

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
