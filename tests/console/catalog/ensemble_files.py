"""An ensemble of two parts on disk: `pipeline` leads over `first` and `second`."""

from __future__ import annotations

from pathlib import Path

from tests.console.catalog.conftest import add_model

PIPELINE = """\
name: "pipeline"
platform: "ensemble"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }
ensemble_scheduling {
  step {
    model_name: "first" model_version: -1
    input_map { key: "x" value: "IN" }
    output_map { key: "y" value: "half_done" }
  }
  step {
    model_name: "second" model_version: 2
    input_map { key: "x" value: "half_done" }
    output_map { key: "y" value: "OUT" }
  }
}
"""
PART = """\
name: "echo"
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
"""


def add_pipeline(root: Path, name: str = "pipeline") -> None:
    for part in ("first", "second"):
        if not (root / part).exists():
            add_model(root, part, text=PART)
    add_ensemble(root, name, PIPELINE.replace("pipeline", name))


def add_ensemble(root: Path, name: str, text: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(text, encoding="utf-8")
