"""Rules about sequence batching and custom batching (VAL-16..25, 60, 61, 63)."""

from __future__ import annotations

from serving.config.findings import Severity
from tests.serving.config.val_texts import (
    BATCHED,
    CONTROL,
    ID,
    INT,
    STATE,
    F,
    Row,
    S,
    control,
    sequence,
)

SEQUENCE_ROWS: list[tuple[str, Row]] = [
    (
        "VAL-16",
        Row(
            sequence(f"§control_input {{ control {{ {INT} }} }}"),
            "sequence_batching.control_input[0]",
            ("must have a name",),
        ),
    ),
    (
        "VAL-17",
        Row(
            sequence(
                control(f"control {{ {INT} }}")
                + f'control_input {{ §name: "S" control {{ kind: CONTROL_SEQUENCE_END {INT} }} }}'
            ),
            "sequence_batching.control_input[1].name",
            ("multiple control kinds",),
        ),
    ),
    (
        "VAL-18",
        Row(
            sequence(
                control(f"control {{ {INT} }}")
                + control(f"control {{ §kind: CONTROL_SEQUENCE_START {INT} }}", "T")
            ),
            "sequence_batching.control_input[1].control[0].kind",
            ("multiple CONTROL_SEQUENCE_START tensors",),
        ),
    ),
    ("VAL-19", Row(sequence(control("§control { }")), CONTROL, ("must specify either",))),
    (
        "VAL-20",
        Row(
            sequence(control(f"§control {{ {INT} fp32_false_true: [0, 1] }}")),
            CONTROL,
            ("more than one",),
        ),
    ),
    (
        "VAL-21",
        Row(
            sequence(control("control { §int32_false_true: [0] }")),
            f"{CONTROL}.int32_false_true",
            ("exactly 2 entries",),
        ),
    ),
    (
        "VAL-22",
        Row(
            sequence(control(f"control {{ {ID} data_type: TYPE_INT32 §{INT} }}")),
            f"{CONTROL}.int32_false_true",
            ("must not specify",),
        ),
    ),
    (
        "VAL-23",
        Row(
            sequence(control(f"control {{ {ID} §data_type: TYPE_FP32 }}")),
            f"{CONTROL}.data_type",
            ("allowed data types", "TYPE_UINT64", "TYPE_STRING"),
        ),
    ),
    (
        "VAL-24",
        Row(
            sequence("oldest { preferred_batch_size: [2, §9] }"),
            "sequence_batching.oldest.preferred_batch_size[1]",
            ("<= max batch size",),
        ),
    ),
    (
        "VAL-24",
        Row(
            sequence("oldest { preferred_batch_size: [§-1] }"),
            "sequence_batching.oldest.preferred_batch_size[0]",
            ("must be positive",),
        ),
    ),
    (
        "VAL-25",
        Row(
            sequence("direct { §minimum_slot_utilization: 1.5 }"),
            "sequence_batching.direct.minimum_slot_utilization",
            ("slot utilization",),
        ),
    ),
    (
        "VAL-60",
        Row(
            sequence(
                f"state {{ {S} dims: [2] initial_state {{ {F} dims: [2] zero_data: true }}\n"
                f"§initial_state {{ {F} dims: [2] zero_data: true }} }}"
            ),
            "sequence_batching.state[0].initial_state[1]",
            ("initial_state", "one is allowed"),
        ),
    ),
    (
        "VAL-60",
        Row(
            sequence(
                f"state {{ {S} dims: [2]\ninitial_state {{ {F} §dims: [2, 2] zero_data: true }} }}"
            ),
            f"{STATE}.dims",
            ("initial_state", "state dimensions"),
        ),
    ),
    (
        "VAL-60",
        Row(
            sequence(
                f"state {{ {S} dims: [2]\ninitial_state {{ {F} §dims: [3] zero_data: true }} }}"
            ),
            f"{STATE}.dims",
            ("initial_state", "state dimensions"),
        ),
    ),
    (
        "VAL-60",
        Row(
            sequence(
                f"state {{ {S} dims: [-1]\ninitial_state {{ {F} §dims: [-1] zero_data: true }} }}"
            ),
            f"{STATE}.dims",
            ("must be fixed", "state dimensions"),
        ),
    ),
    (
        "VAL-60",
        Row(
            sequence(f"state {{ {S} dims: [2]\n§initial_state {{ {F} dims: [2] }} }}"),
            STATE,
            ("initial_state", "zero_data or data_file"),
        ),
    ),
    (
        "VAL-60",
        Row(
            sequence(
                f'state {{ {S} dims: [4]\ninitial_state {{ {F} dims: [4] §data_file: "short" }} }}'
            ),
            f"{STATE}.data_file",
            ("initial_state", "8 bytes, 16 are needed"),
        ),
    ),
    (
        "VAL-61",
        Row(
            sequence(f"state {{ {S} dims: [1] }}\nstate {{ §{S} dims: [1] }}"),
            "sequence_batching.state[1].input_name",
            ("more than once",),
        ),
    ),
    (
        "VAL-63",
        Row(
            f'{sequence("")}§parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" '
            'value { string_value: "m/lib.so" } }',
            'parameters["TRITON_BATCH_STRATEGY_PATH"]',
            ("batching", "sequence"),
        ),
    ),
    (
        "VAL-63",
        Row(
            f'{BATCHED}§parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" '
            'value { string_value: "../lib.so" } }',
            'parameters["TRITON_BATCH_STRATEGY_PATH"]',
            ("batching", "outside the model repository"),
        ),
    ),
    (
        "VAL-63",
        Row(
            f'{BATCHED}§parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" '
            'value { string_value: "m/none.so" } }',
            'parameters["TRITON_BATCH_STRATEGY_PATH"]',
            ("no custom batching library",),
        ),
    ),
    (
        "VAL-63",
        Row(
            f'{BATCHED}§parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" '
            'value { string_value: "m/lib.so" } }',
            'parameters["TRITON_BATCH_STRATEGY_PATH"]',
            ("custom batching library", "not used"),
            severity=Severity.WARNING,
        ),
    ),
]
