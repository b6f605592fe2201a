"""How long `python -m serving validate` takes for a repository of 1,000 generated models.

    python -m benchmarks.validate [--models 1000] [--limit 10]

Half of the models are ONNX files with a config of usual size, the rest Python models, ensembles of
two parts, and models with mistakes. Exit status 1 when the time is over the limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

CONFIG = """\
# Generated model {index}.
backend: "{backend}"
max_batch_size: 16
input [
  {{ name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }},
  {{ name: "ids" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }}
]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1000 ] label_filename: "labels.txt" }} ]
instance_group [ {{ kind: KIND_CPU count: 2 }} ]
dynamic_batching {{
  preferred_batch_size: [ 4, {preferred} ]
  max_queue_delay_microseconds: 500
  default_queue_policy {{ timeout_action: REJECT default_timeout_microseconds: 100000 }}
}}
version_policy {{ latest {{ num_versions: 2 }} }}
parameters {{ key: "threads" value {{ string_value: "4" }} }}
"""
ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }},
        {{ name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1000 ] }} ]
ensemble_scheduling {{
  step [
    {{
      model_name: "model_{part:04}" model_version: -1
      input_map {{ key: "x" value: "x" }} input_map {{ key: "ids" value: "ids" }}
      output_map {{ key: "y" value: "y" }}
    }}
  ]
}}
"""
PYTHON = """\
class TritonPythonModel:
    def execute(self, requests):
        return [None for _ in requests]
"""


def onnx_bytes() -> bytes:
    def value(name: str, kind: int, shape: list[str | int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [
        value("x", TensorProto.FLOAT, ["n", 3, 224, 224]),
        value("ids", TensorProto.INT64, ["n", "length"]),
    ]
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    outputs = [value("y", TensorProto.FLOAT, ["n", 1000])]
    content: bytes = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs)
    ).SerializeToString()
    return content


def generate(root: Path, count: int) -> None:
    model_file = onnx_bytes()
    for index in range(count):
        directory = root / f"model_{index:04}"
        (directory / "1").mkdir(parents=True)
        kind = ("onnx", "python", "onnx", "mistake", "onnx", "ensemble")[index % 6]
        if kind == "ensemble":
            text = ENSEMBLE.format(part=index - 1)
        else:
            backend = "python" if kind == "python" else "onnxruntime"
            preferred = 64 if kind == "mistake" else 16
            text = CONFIG.format(index=index, backend=backend, preferred=preferred)
            (directory / "labels.txt").write_text("cat\ndog\n")
            name = "model.py" if backend == "python" else "model.onnx"
            content = PYTHON.encode() if backend == "python" else model_file
            (directory / "1" / name).write_bytes(content)
        (directory / "config.pbtxt").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), options.models)
        command = [sys.executable, "-m", "serving", "validate", "--json", folder]
        start = time.perf_counter()
        result = subprocess.run(command, capture_output=True, check=False, text=True)
        seconds = time.perf_counter() - start
    report = json.loads(result.stdout)
    print(
        f"{len(report['models'])} models, {report['errors']} errors, {report['warnings']} warnings "
        f"in {seconds:.2f} s, start of the process included"
    )
    return 1 if seconds > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
