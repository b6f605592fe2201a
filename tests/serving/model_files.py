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


def write_ensemble(
    root: Path,
    name: str,
    *parts: str,
    size: int = 8,
    extra: str = "",
    versions: tuple[int, ...] = (1,),
) -> Path:
    """A chain of FP32[4] models with INPUT0 and OUTPUT0, the first one fed by the request.

    A part is a name, or "name:3" for its version 3.
    """
    tensors = ["INPUT0", *(f"t{index}" for index in range(1, len(parts))), "OUTPUT0"]
    steps = []
    for index, part in enumerate(parts):
        model, _, version = part.partition(":")
        steps.append(
            f'{{ model_name: "{model}" model_version: {version or -1} '
            f'input_map {{ key: "INPUT0" value: "{tensors[index]}" }} '
            f'output_map {{ key: "OUTPUT0" value: "{tensors[index + 1]}" }} }}'
        )
    model_directory = root / name
    for number in versions:
        (model_directory / str(number)).mkdir(parents=True, exist_ok=True)
    head = IDENTITY.replace('backend: "identity"', 'platform: "ensemble"')
    head = head.replace("max_batch_size: 8", f"max_batch_size: {size}")
    (model_directory / "config.pbtxt").write_text(
        f"{head}ensemble_scheduling {{ step [\n" + ",\n".join(steps) + f"\n] }}\n{extra}"
    )
    return model_directory
