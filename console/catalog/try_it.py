"""What the Try it tab needs to know about a model: its tensors, examples, labels, chosen view.

Data comes from a worker's description (metadata and complete config) and the label files on disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.urls import reverse

from serving.errors import NotFoundError

# Views by name of the config parameter `try_it`; the modules are in static/js/try_it.
VIEWS = {
    "file_ends": "Drop a file",
    "image_text": "Read an image",
    "speech_chunks": "Listen",
    "text": "Text",
    "text_line_ctc": "Read a line",
}
FORM = "form"
MAX_EXAMPLE_ELEMENTS = 64
IMAGE_SIDE = 224
"""Pixels; the strides of convolutional networks divide it."""
_CHANNELS = (1, 3)
MAX_LABEL_BYTES = 4 << 20


def view_of(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """The view that the config asks for, or empty; an unknown name falls back to the form.

    A config that asks for none still gets the view that its signature fits beyond doubt.
    """
    parameters = config.get("parameters") or {}
    name = str((parameters.get("try_it") or {}).get("string_value", ""))
    if not name:
        return "image_text" if _reads_images(metadata) else ""
    return name if name in VIEWS else ""


def _reads_images(metadata: Mapping[str, Any]) -> bool:
    """One BYTES element in; texts and boxes of four corners out."""
    inputs = [_tensor(item) for item in metadata.get("inputs", [])]
    outputs = [_tensor(item) for item in metadata.get("outputs", [])]
    takes_one = len(inputs) == 1 and all(dim in (-1, 1) for dim in inputs[0]["shape"])
    return (
        takes_one
        and inputs[0]["datatype"] == "BYTES"
        and any(item["datatype"] == "BYTES" for item in outputs)
        and any(item["shape"][-2:] == [4, 2] for item in outputs)
    )


def description(
    name: str, metadata: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """What the page hands to its script, as JSON."""
    inputs = {item["name"]: item for item in config.get("input", [])}
    outputs = {item["name"]: item for item in config.get("output", [])}
    is_batched = int(config.get("max_batch_size", 0)) > 0
    return {
        "name": name,
        "infer_path": f"/v2/models/{name}",
        "labels_url": reverse("catalog:labels", args=[name]),
        "sequence_ids": sequence_ids(config),
        "is_decoupled": bool((config.get("model_transaction_policy") or {}).get("decoupled")),
        "inputs": [
            _input(item, inputs.get(item["name"], {}), is_batched) for item in metadata["inputs"]
        ],
        "outputs": [
            {
                **_tensor(item),
                "has_labels": bool(outputs.get(item["name"], {}).get("label_filename")),
            }
            for item in metadata["outputs"]
        ],
    }


def sequence_ids(config: Mapping[str, Any]) -> str:
    """How requests name their sequence: number, text, or empty where they need none."""
    sequence = config.get("sequence_batching")
    if not sequence or sequence.get("iterative_sequence"):
        return ""
    types = [
        control.get("data_type")
        for item in sequence.get("control_input", [])
        for control in item.get("control", [])
        if control.get("kind") == "CONTROL_SEQUENCE_CORRID"
    ]
    return "text" if "TYPE_STRING" in types else "number"


def _tensor(item: Mapping[str, Any]) -> dict[str, Any]:
    shape = [int(dim) for dim in item["shape"]]
    return {"name": item["name"], "datatype": item["datatype"], "shape": shape}


def _input(
    item: Mapping[str, Any], configured: Mapping[str, Any], is_batched: bool
) -> dict[str, Any]:
    tensor = _tensor(item)
    shape = tensor["shape"]
    example_shape = _example_shape(shape)
    return {
        **tensor,
        "dims": shape[1:] if is_batched else shape,
        "optional": bool(configured.get("optional")),
        "example_shape": example_shape,
        "example": example(tensor["datatype"], example_shape),
    }


def _example_shape(shape: list[int]) -> list[int]:
    """One item; an image whose size is left open gets one that networks take."""
    inner = shape[-3:]
    is_image = len(shape) in (3, 4) and (
        (inner[0] in _CHANNELS and inner[1:] == [-1, -1])
        or (inner[2] in _CHANNELS and inner[:2] == [-1, -1])
    )
    made = [1 if dim == -1 else dim for dim in shape]
    if is_image:
        made[-3:] = [IMAGE_SIDE if dim == -1 else dim for dim in inner]
    return made


def example(datatype: str, shape: list[int]) -> str:
    """JSON of small values of the shape, or empty where that would fill the page."""
    count = 1
    for dim in shape:
        count *= dim
    if count > MAX_EXAMPLE_ELEMENTS:
        return ""
    value: Any = 0
    if datatype == "BYTES":
        value = "text"
    elif datatype == "BOOL":
        value = True
    elif datatype.startswith(("FP", "BF")):
        value = 0.5
    return json.dumps([value] * count)


def labels(model_directory: Path, config: Mapping[str, Any], output: str) -> list[str]:
    """Lines of the output's label file. Raises NotFoundError."""
    configured = next((item for item in config.get("output", []) if item["name"] == output), None)
    filename = str((configured or {}).get("label_filename", ""))
    if not filename:
        raise NotFoundError(f"Output '{output}' has no label_filename in the config.")
    path = (model_directory / filename).resolve()
    is_inside = path.is_relative_to(model_directory.resolve())
    if not is_inside or not path.is_file() or path.stat().st_size > MAX_LABEL_BYTES:
        raise NotFoundError(
            f"The label file '{filename}' of output '{output}' cannot be read: it must lie in the "
            "model's directory."
        )
    text: str = path.read_text(encoding="utf-8", errors="replace")
    return text.removesuffix("\n").split("\n")
