"""Fields of ModelConfig that are accepted and have no effect here, each with the reason.

Pure data and one rule; any thread. docs/reference/config.md says the same in full.
"""

from __future__ import annotations

import re

from serving.config.report import Report

_NO_STAGING = "the runtime moves data between host and device itself"

IGNORED: dict[str, tuple[str, str]] = {
    "cc_model_filenames": ("CFG-015", "the default model file is used on every device"),
    "instance_group.secondary_devices": ("CFG-065", "they are DLA cores, for TensorRT only"),
    "sequence_batching.state.use_same_buffer_for_input_output": (
        "CFG-012",
        "a sequence has one present state either way",
    ),
    "sequence_batching.state.use_growable_memory": (
        "CFG-012",
        "a state grows where its dims are -1, in ordinary memory",
    ),
    "optimization.priority": ("CFG-081", "it is that of TensorRT's streams"),
    "optimization.cuda": ("CFG-082", "it is about TensorRT's streams and graphs"),
    "optimization.input_pinned_memory": ("CFG-087", _NO_STAGING),
    "optimization.output_pinned_memory": ("CFG-087", _NO_STAGING),
    "optimization.gather_kernel_buffer_threshold": ("CFG-088", _NO_STAGING),
    "optimization.eager_batching": ("CFG-089", "a batch is formed when an instance is free"),
}
"""Field, without the indexes of repeated fields -> row of the reference and reason."""

READ_BY_TENSORRT = frozenset(
    {
        "instance_group.secondary_devices",
        "optimization.priority",
        "optimization.cuda",
        "optimization.input_pinned_memory",
        "optimization.output_pinned_memory",
    }
)
"""Of those above: what has an effect on TensorRT models, and on no others."""

ONNX_ONLY: dict[str, str] = {
    "model_operations": "CFG-019",
    "optimization.graph": "CFG-080",
    "optimization.execution_accelerators": "CFG-085",
}
GENERATED: dict[str, str] = {"batch_input": "CFG-009", "batch_output": "CFG-010"}
"""Without effect on Python models: they get each request's own tensors, and join them."""
_INDEX = re.compile(r"\[[^\]]*\]")


def check_ignored(report: Report) -> None:
    """A note for each such field that the text gives."""
    backend = report.config.backend
    if backend == "python":
        for field, code in GENERATED.items():
            for index in range(len(getattr(report.config, field))):
                reason = "a Python model gets each request's own tensors and joins them itself"
                report.note(f"{field}[{index}]", f"'{field}' has no effect: {reason}", code=code)
    for path in report.parsed.places:
        if path.endswith("]"):
            continue
        field = _INDEX.sub("", path)
        if field in READ_BY_TENSORRT and report.is_tensorrt:
            continue
        if field in IGNORED:
            code, reason = IGNORED[field]
            report.note(path, f"'{field}' has no effect: {reason}", code=code)
        elif field in ONNX_ONLY and backend != "onnxruntime" and not report.is_ensemble:
            reason = f"backend '{backend}' does not read it, only onnxruntime does"
            report.note(path, f"'{field}' has no effect: {reason}", code=ONNX_ONLY[field])
