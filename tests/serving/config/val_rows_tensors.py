"""Rules about inputs, outputs and instance groups (VAL-39..55, 58, 62)."""

from __future__ import annotations

from typing import Any

from serving.config.validate import Available
from tests.serving.config.val_texts import BASE, RAW, Row, X, group, tensor, warmup

TENSOR_ROWS: list[tuple[str, Row]] = [
    (
        "VAL-39",
        Row(
            tensor("data_type: TYPE_FP32 dims: 1").replace("input {", "§input {"),
            "input[0]",
            ("model input", "must specify 'name'"),
        ),
    ),
    (
        "VAL-39",
        Row(
            tensor('name: "x" dims: 1').replace("input {", "§input {"),
            "input[0]",
            ("model input", "must specify 'data_type'"),
        ),
    ),
    (
        "VAL-39",
        Row(
            f'{BASE}§output {{ name: "C" data_type: TYPE_FP32 }}',
            "output[1]",
            ("model output", "must specify 'dims'"),
        ),
    ),
    (
        "VAL-40",
        Row(tensor(f"{X} dims: [2, §0]"), "input[0].dims[1]", ("integer >= 1, or -1",)),
    ),
    ("VAL-40", Row(tensor(f"{X} §dims: -2"), "input[0].dims[0]", ("integer >= 1, or -1",))),
    (
        "VAL-41",
        Row(
            tensor(f"{X} dims: 4 reshape {{ shape: [§0] }}"),
            "input[0].reshape.shape[0]",
            ("reshape dimensions",),
        ),
    ),
    (
        "VAL-42",
        Row(tensor(f"{X} dims: 1 §reshape {{ }}"), "input[0].reshape", ("scalar tensors",)),
    ),
    (
        "VAL-43",
        Row(
            tensor(f"{X} dims: 4 §reshape {{ shape: 3 }}"), "input[0].reshape", ("different size",)
        ),
    ),
    (
        "VAL-44",
        Row(
            tensor(f"{X} dims: [-1, 4] §reshape {{ shape: 4 }}"),
            "input[0].reshape",
            ("different number of variable-size",),
        ),
    ),
    (
        "VAL-45",
        Row(tensor(f"{X} dims: 4 §format: FORMAT_NCHW"), "input[0].format", ("require 3 dims",)),
    ),
    (
        "VAL-46",
        Row(
            tensor(f"{X} dims: 4 §is_shape_tensor: true"),
            "input[0].is_shape_tensor",
            ("only supported for TensorRT",),
        ),
    ),
    (
        "VAL-46",
        Row(
            tensor(f"{X} dims: [1, 2, 3] §is_non_linear_format_io: true"),
            "input[0].is_non_linear_format_io",
            ("only supported for TensorRT",),
        ),
    ),
    (
        "VAL-47",
        Row(
            tensor(f"{X} dims: 4 §is_non_linear_format_io: true").replace(
                "onnxruntime", "tensorrt"
            ),
            "input[0].is_non_linear_format_io",
            ("requires 3 dims",),
        ),
    ),
    (
        "VAL-48",
        Row(
            f"{BASE}§batch_input {{ data_type: TYPE_INT32 }}", "batch_input[0]", ("1 source input",)
        ),
    ),
    (
        "VAL-48",
        Row(
            f'{BASE}batch_input {{ source_input: "A" §data_type: TYPE_INT64 }}',
            "batch_input[0].data_type",
            ("data type",),
        ),
    ),
    (
        "VAL-48",
        Row(
            f'{BASE}batch_input {{ data_type: TYPE_INT32 §source_input: "q" }}',
            "batch_input[0].source_input[0]",
            ("unknown source input",),
        ),
    ),
    (
        "VAL-49",
        Row(f'{BASE}§batch_output {{ target_name: "B" }}', "batch_output[0]", ("1 source input",)),
    ),
    (
        "VAL-49",
        Row(
            f'{BASE}batch_output {{ target_name: "B" §source_input: "q" }}',
            "batch_output[0].source_input[0]",
            ("unknown source input",),
        ),
    ),
    (
        "VAL-49",
        Row(
            f'{BASE}batch_output {{ source_input: "A" target_name: ["B", §"q"] }}',
            "batch_output[0].target_name[1]",
            ("unknown", "target output name"),
        ),
    ),
    (
        "VAL-49",
        Row(
            f'{BASE}batch_output {{ source_input: "A" target_name: ["B", §"B"] }}',
            "batch_output[0].target_name[1]",
            ("duplicate", "target output name"),
        ),
    ),
]

HERE: dict[str, Any] = {"available": Available(gpu_count=0)}
TWO: dict[str, Any] = {"available": Available(gpu_count=2)}

INSTANCE_ROWS: list[tuple[str, Row]] = [
    ("VAL-50", Row(BASE, "instance_group", ("one or more",), RAW)),
    (
        "VAL-51",
        Row(group("kind: KIND_CPU §gpus: [0]"), "instance_group[0].gpus", ("one or more GPUs",)),
    ),
    (
        "VAL-51",
        Row(group("kind: KIND_MODEL §gpus: [0]"), "instance_group[0].gpus", ("one or more GPUs",)),
    ),
    (
        "VAL-52",
        Row(group("§kind: KIND_GPU"), "instance_group[0].kind", ("no GPUs are available",), HERE),
    ),
    (
        "VAL-53",
        Row(
            group("kind: KIND_GPU gpus: [0, §2]"),
            "instance_group[0].gpus[1]",
            ("invalid or unsupported gpu id 2", "0, 1"),
            TWO,
        ),
    ),
    (
        "VAL-54",
        Row(group('kind: KIND_CPU §profile: "1"'), "instance_group[0].profile[0]", ("profile",)),
    ),
    (
        "VAL-54",
        Row(
            group('kind: KIND_GPU §profile: "first"').replace("onnxruntime", "tensorrt"),
            "instance_group[0].profile[0]",
            ("profile", "non-negative integer"),
        ),
    ),
    (
        "VAL-55",
        Row(group("§kind: KIND_AUTO"), "instance_group[0].kind", ("unexpected kind",), RAW),
    ),
    (
        "VAL-58",
        Row(
            group('rate_limiter { resources [ { name: "r" }, §{ name: "r" global: true } ] }'),
            "instance_group[0].rate_limiter.resources[1]",
            ("present as both global",),
        ),
    ),
    (
        "VAL-62",
        Row(
            warmup('key: "A" value { data_type: TYPE_FP32 §dims: [-1] zero_data: true }'),
            'model_warmup[0].inputs["A"].dims',
            ("warmup setting",),
        ),
    ),
    (
        "VAL-62",
        Row(
            f'{BASE}model_warmup {{\n  name: "w" batch_size: 1\n  §inputs {{ key: "A" '
            "value { data_type: TYPE_FP32 dims: [4] } }\n}",
            'model_warmup[0].inputs["A"]',
            ("warmup setting", "where its data comes from"),
        ),
    ),
    (
        "VAL-62",
        Row(
            warmup('key: "A" value { data_type: TYPE_FP32 dims: [4] §input_data_file: "short" }'),
            'model_warmup[0].inputs["A"].input_data_file',
            ("warmup setting", "8 bytes, 16 are needed"),
        ),
    ),
]
