"""Model directories for tests: identity models, which need no runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from serving.datatypes import BY_NAME
from serving.request import InferenceRequest, InputTensor

IDENTITY = """\
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
"""


def write_identity(
    root: Path, name: str, *, versions: tuple[int, ...] = (1,), extra: str = "", delay_ms: int = 0
) -> Path:
    """An FP32[4] identity model; `extra` is appended to its config."""
    model = root / name
    model.mkdir(exist_ok=True)
    for version in versions:
        (model / str(version)).mkdir(parents=True, exist_ok=True)
    if delay_ms:
        value = f'value {{ string_value: "{delay_ms}" }}'
        extra += f'parameters {{ key: "execute_delay_ms" {value} }}\n'
    (model / "config.pbtxt").write_text(IDENTITY + extra)
    return model


def identity_request(name: str, version: int = -1, *, value: float = 1.0) -> InferenceRequest:
    array = np.full((1, 4), value, dtype=np.float32)
    tensor = InputTensor("INPUT0", BY_NAME["FP32"], (1, 4), array)
    return InferenceRequest(name, version, id="r", inputs={"INPUT0": tensor})
