"""Small ONNX files, written with the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None] | None


def write_onnx(
    path: Path,
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape]],
    *,
    initializers: Mapping[str, np.ndarray] | None = None,
    external: str = "",
) -> Path:
    """A graph of the given signature; its nodes do nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [numpy_helper.from_array(v, name) for name, v in (initializers or {}).items()]
    graph = helper.make_graph(
        [helper.make_node("Identity", [next(iter(inputs))], [name]) for name in outputs],
        "g",
        [helper.make_tensor_value_info(name, *item) for name, item in inputs.items()],
        [helper.make_tensor_value_info(name, *item) for name, item in outputs.items()],
        tensors,
    )
    model = helper.make_model(graph)
    if external:
        onnx.save_model(
            model, path, save_as_external_data=True, location=external, size_threshold=0
        )
    else:
        onnx.save_model(model, path)
    return path


FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
