"""Rules about an ensemble by itself (VAL-26..37)."""

from __future__ import annotations

from tests.serving.config.val_texts import BASE, IO, STEP, Row, ensemble

ENSEMBLE_ROWS: list[tuple[str, Row]] = [
    (
        "VAL-26",
        Row(
            f'{BASE}platform: "onnxruntime_onnx"\n§ensemble_scheduling {{ }}',
            "ensemble_scheduling",
            ("platform is not ensem",),
        ),
    ),
    ("VAL-27", Row(f'{IO}§platform: "ensemble"', "platform", ("must be set",))),
    (
        "VAL-28",
        Row(ensemble(extra="§instance_group { }"), "instance_group", ("instance group",)),
    ),
    ("VAL-29", Row(ensemble(extra="§optimization { }"), "optimization", ("optimization",))),
    ("VAL-30", Row(ensemble(extra="§model_warmup { }"), "model_warmup", ("model_warmup",))),
    (
        "VAL-31",
        Row(
            f'platform: "ensemble"\n{IO}§ensemble_scheduling {{ }}',
            "ensemble_scheduling",
            ("must specify 'step'",),
        ),
    ),
    (
        "VAL-32",
        Row(
            ensemble("§" + STEP.replace('model_name: "part"', "")),
            "ensemble_scheduling.step[0]",
            ("model_name", "step 0"),
        ),
    ),
    (
        "VAL-33",
        Row(
            ensemble(STEP + STEP.replace("output_map", "§output_map")),
            'ensemble_scheduling.step[1].output_map["y"]',
            ("only once",),
        ),
    ),
    (
        "VAL-34",
        Row(
            ensemble(STEP.replace("output_map", '§input_map { key: "x" value: "A" } output_map')),
            'ensemble_scheduling.step[0].input_map["x"]',
            ("multiple ensemble tensors",),
        ),
    ),
    (
        "VAL-35",
        Row(
            ensemble(extra='§input { name: "C" data_type: TYPE_FP32 dims: 1 }'),
            "input[1]",
            ("is not used",),
        ),
    ),
    (
        "VAL-36",
        Row(
            ensemble(extra='§output { name: "C" data_type: TYPE_FP32 dims: 1 }'),
            "output[1]",
            ("'C'", "is not written"),
        ),
    ),
    (
        "VAL-37",
        Row(
            ensemble(STEP.replace("output_map", '§output_map { key: "q" value: "t" } output_map')),
            'ensemble_scheduling.step[0].output_map["q"]',
            ("is unused",),
        ),
    ),
    (
        "VAL-37",
        Row(
            ensemble(STEP.replace("output_map", '§input_map { key: "q" value: "t" } output_map')),
            'ensemble_scheduling.step[0].input_map["q"]',
            ("is unused",),
        ),
    ),
]
