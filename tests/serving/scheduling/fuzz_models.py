"""Models for the fuzz: for each scheduler, host and kind of input one that can be told by heart.

FP32 and ragged inputs come back doubled from a model in a thread (ONNX Runtime, which joins the
requests of a batch and cuts the result up again) and from a Python model in a process (which does
the same itself); BYTES come back as they are. Ensembles run two of them, one behind the other.
"""

from __future__ import annotations

from pathlib import Path

from onnx import helper

from tests.serving.backends import onnx_files

KINDS = ("FP32", "BYTES", "RAGGED")
HOSTS = ("thread", "process")
POLICY = """default_queue_policy {
  timeout_action: REJECT default_timeout_microseconds: 30000000 allow_timeout_override: true
}"""
SCHEDULERS = {
    "default": "",
    "dynamic": f"dynamic_batching {{ max_queue_delay_microseconds: 200 {POLICY} }}",
    "direct": "sequence_batching { direct { } max_sequence_idle_microseconds: 60000000 }",
    "oldest": """sequence_batching {
      oldest { max_candidate_sequences: 64 } max_sequence_idle_microseconds: 60000000
    }""",
    "ensemble": "",
}
_IO = """
max_batch_size: 16
input { name: "X" data_type: TYPE_KIND dims: [-1]RAGGED }
output { name: "Y" data_type: TYPE_KIND dims: [-1] }
"""
_JOINED = """
batch_input { kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_FP32 source_input: "X" }
batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "Y" source_input: "X" }
"""
_STEP = """step {
  model_name: "PART" model_version: -1
  input_map { key: "X" value: "FROM" } output_map { key: "Y" value: "TO" }
}"""
_PROGRAM = """
import numpy as np
import triton_python_backend_utils as pb_utils


def result_of(array):
    return array if array.dtype == np.object_ else array + array


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        whole = result_of(np.concatenate([array.ravel() for array in arrays]))
        answers = []
        for array in arrays:
            part, whole = whole[: array.size], whole[array.size :]
            tensor = pb_utils.Tensor("Y", part.reshape(array.shape))
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
"""


def write(root: Path, scheduler: str, host: str) -> None:
    """One model for each kind, named after it, and what ensembles of that name call."""
    for kind in KINDS:
        if scheduler == "ensemble":
            _write_ensemble(root, kind)
            _write_one(root, f"{kind}_first", kind, host, SCHEDULERS["dynamic"])
            _write_one(root, f"{kind}_second", kind, host, "")
        else:
            _write_one(root, kind, kind, host, SCHEDULERS[scheduler])


def _io(kind: str) -> str:
    text = _IO.replace("RAGGED", " allow_ragged_batch: true" if kind == "RAGGED" else "")
    return text.replace("TYPE_KIND", "TYPE_STRING" if kind == "BYTES" else "TYPE_FP32")


def _write_one(root: Path, name: str, kind: str, host: str, scheduling: str) -> None:
    folder = root / name
    (folder / "1").mkdir(parents=True)
    config = _io(kind) + scheduling
    if host == "process":
        (folder / "1" / "model.py").write_text(_PROGRAM)
        config = f'backend: "python" instance_group {{ kind: KIND_CPU count: 1 }} {config}'
    else:
        _write_onnx(folder, kind)
        config = f'backend: "onnxruntime" instance_group {{ kind: KIND_CPU count: 2 }} {config}'
        config += _JOINED if kind == "RAGGED" else ""
    (folder / "config.pbtxt").write_text(config)


def _write_onnx(folder: Path, kind: str) -> None:
    onnx_type = onnx_files.STRING if kind == "BYTES" else onnx_files.FLOAT
    shape = ("all",) if kind == "RAGGED" else ("batch", "n")
    inputs = [onnx_files.value("X", onnx_type, shape)]
    node = helper.make_node("Add", ["X", "X"], ["Y"])
    if kind == "BYTES":
        node = helper.make_node("Identity", ["X"], ["Y"])
    if kind == "RAGGED":
        inputs.append(onnx_files.value("N", onnx_type, ("requests",)))
    onnx_files.write(folder, inputs, [onnx_files.value("Y", onnx_type, shape)], [node])


def _write_ensemble(root: Path, kind: str) -> None:
    folder = root / kind
    (folder / "1").mkdir(parents=True)
    steps = [
        _STEP.replace("PART", f"{kind}_first").replace("FROM", "X").replace("TO", "middle"),
        _STEP.replace("PART", f"{kind}_second").replace("FROM", "middle").replace("TO", "Y"),
    ]
    text = _io("BYTES" if kind == "BYTES" else "FP32")
    (folder / "config.pbtxt").write_text(
        f'platform: "ensemble" {text} ensemble_scheduling {{ {" ".join(steps)} }}'
    )
