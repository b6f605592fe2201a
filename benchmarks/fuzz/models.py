"""What the fuzzed server serves: every way a request can take, at little cost."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

CANARY = "canary"
"""Nothing that is mutated asks for it by its name, unless by chance; it must always answer."""
CHURN = "churn"
"""Mutated requests load and unload it."""
REGION_KEY = "conch_fuzz_%d"
REGION_BYTES = 4096

_CONFIG = """\
backend: "identity"
max_batch_size: {batch}
input {{ name: "INPUT0" data_type: TYPE_{kind} dims: [ {dims} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_{kind} dims: [ {dims} ] {output} }}
{extra}
"""
_WORDS = """\
backend: "identity"
input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }
"""
_SEQUENCE = """\
sequence_batching {
  max_sequence_idle_microseconds: 200000
  oldest { max_candidate_sequences: 4 }
  control_input {
    name: "START"
    control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }
  }
}
"""
_ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
  step {
    model_name: "identity" model_version: -1
    input_map { key: "INPUT0" value: "INPUT0" }
    output_map { key: "OUTPUT0" value: "OUTPUT0" }
  }
}
"""
_REPEAT = """\
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
"""
_REPEAT_CODE = '''\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    """One response for each of the first five elements."""

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            for element in array[:5]:
                tensor = pb_utils.Tensor("OUTPUT0", element.reshape(1))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''


def write_repository(root: Path, *, with_python: bool) -> Path:
    batching = "dynamic_batching { max_queue_delay_microseconds: 100 }"
    _write(root, CANARY, config("FP32", "-1"))
    _write(root, CHURN, config("FP32", "-1"))
    _write(root, "identity", config("FP32", "-1", batch=8, extra=batching))
    _write(root, "numbers", config("INT64", "-1, 2"))
    _write(root, "strings", config("STRING", "-1"))
    _write(root, "half", config("FP16", "-1"))
    _write(root, "flags", config("BOOL", "2, 3"))
    labelled = _write(root, "labelled", config("FP32", "3", output='label_filename: "labels.txt"'))
    (labelled / "labels.txt").write_text("cat\ndog\nfish\n")
    _write(root, "words", _WORDS)
    _write(root, "sequence", config("FP32", "-1", batch=8, extra=_SEQUENCE))
    _write(root, "ensemble", _ENSEMBLE)
    _write_onnx(root / "onnx" / "1")
    if with_python:
        (_write(root, "repeat", _REPEAT) / "1" / "model.py").write_text(_REPEAT_CODE)
    return root


def config(kind: str, dims: str, *, batch: int = 0, output: str = "", extra: str = "") -> str:
    return _CONFIG.format(kind=kind, dims=dims, batch=batch, output=output, extra=extra)


def _write(root: Path, name: str, text: str) -> Path:
    model = root / name
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(text)
    return model


def _write_onnx(folder: Path) -> None:
    """OUTPUT0 = INPUT0 + 1 on FP32 [batch, 4]; without a config.pbtxt."""
    folder.mkdir(parents=True)
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4])
        for name in ("INPUT0", "OUTPUT0")
    ]
    add = helper.make_node("Add", ["INPUT0", "one"], ["OUTPUT0"])
    graph = helper.make_graph([add], "plus_one", infos[:1], infos[1:], [one])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "model.onnx")
