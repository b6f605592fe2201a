"""Rules about the whole model and about dynamic batching (VAL-01..15, 38, 56, 57)."""

from __future__ import annotations

from serving.config.validate import Available
from tests.serving.config.val_texts import (
    BASE,
    DELAY,
    DYNAMIC,
    IO,
    RAW,
    Row,
    dynamic,
    ensemble,
    sequence,
)

MODEL_ROWS: list[tuple[str, Row]] = [
    ("VAL-01", Row(BASE, "name", ("model configuration", "name"), RAW)),
    ("VAL-02", Row(IO, "platform", ("unexpected platform type",))),
    ("VAL-02", Row(f'{IO}§platform: "odd"\n', "platform", ("unexpected platform type 'odd'",))),
    (
        "VAL-03",
        Row(
            ensemble(extra='§backend: "python"\n'),
            "backend",
            ("platform type ensemble", "empty backend"),
        ),
    ),
    (
        "VAL-04",
        Row(f'{BASE}§platform: "tensorrt_plan"', "platform", ("pair", "tensorrt_plan", "onnxrun")),
    ),
    ("VAL-05", Row(f"{BASE}§max_batch_size: -1", "max_batch_size", ("max_batch_size", "non-neg"))),
    ("VAL-06", Row(BASE, "version_policy", ("version policy",), RAW)),
    (
        "VAL-07",
        Row(
            dynamic("preferred_batch_size: [2, §0]"),
            f"{DYNAMIC}preferred_batch_size[1]",
            ("must be positive",),
        ),
    ),
    (
        "VAL-08",
        Row(
            dynamic("preferred_batch_size: [2, §8]"),
            f"{DYNAMIC}preferred_batch_size[1]",
            ("<= max batch size",),
        ),
    ),
    (
        "VAL-09",
        Row(
            dynamic("priority_levels: 2\n  §default_priority_level: 3"),
            f"{DYNAMIC}default_priority_level",
            ("range [1, 2]",),
        ),
    ),
    ("VAL-09", Row(dynamic("§priority_levels: 2"), f"{DYNAMIC}priority_levels", ("range [1, 2]",))),
    (
        "VAL-10",
        Row(
            dynamic(
                "priority_levels: 2 default_priority_level: 1\n"
                "  §priority_queue_policy { key: 3 value { } }"
            ),
            f"{DYNAMIC}priority_queue_policy[3]",
            ("range [1, 2]",),
        ),
    ),
    (
        "VAL-11",
        Row(
            dynamic("priority_levels: 2 default_priority_level: 1 §preserve_ordering: true"),
            f"{DYNAMIC}preserve_ordering",
            ("one priority level",),
        ),
    ),
    (
        "VAL-12",
        Row(
            dynamic(f"preserve_ordering: true\n default_queue_policy {{ §{DELAY} }}"),
            f"{DYNAMIC}default_queue_policy.timeout_action",
            ("DELAY", "preserve_ordering"),
        ),
    ),
    (
        "VAL-13",
        Row(
            dynamic(
                "preserve_ordering: true priority_levels: 1 default_priority_level: 1\n"
                f"priority_queue_policy {{ key: 1 value {{ §{DELAY} }} }}"
            ),
            f"{DYNAMIC}priority_queue_policy[1].timeout_action",
            ("DELAY", "preserve_ordering"),
        ),
    ),
    (
        "VAL-14",
        Row(
            sequence("") + "response_cache { §enable: true }",
            "response_cache.enable",
            ("Response Cache", "sequence"),
        ),
    ),
    (
        "VAL-15",
        Row(
            f"{BASE}response_cache {{ §enable: true }}\n"
            "model_transaction_policy { decoupled: true }",
            "response_cache.enable",
            ("Response Cache", "decoupled"),
        ),
    ),
    (
        "VAL-38",
        Row(
            f"{BASE}model_metrics {{\n  §metric_control {{ }}\n}}",
            "model_metrics.metric_control[0]",
            ("metric_identifier",),
        ),
    ),
    (
        "VAL-38",
        Row(
            f"{BASE}model_metrics {{ §metric_control {{ metric_identifier {{ }} }} }}",
            "model_metrics.metric_control[0]",
            ("family",),
        ),
    ),
    (
        "VAL-38",
        Row(
            f'{BASE}model_metrics {{ §metric_control {{ metric_identifier {{ family: "f" }} }} }}',
            "model_metrics.metric_control[0]",
            ("histogram_options",),
        ),
    ),
    (
        "VAL-38",
        Row(
            f'{BASE}model_metrics {{ §metric_control {{ metric_identifier {{ family: "f" }} '
            "histogram_options { } } }",
            "model_metrics.metric_control[0]",
            ("buckets",),
        ),
    ),
    (
        "VAL-56",
        Row(f'{BASE}§name: "dog"', "name", ("directory name must equal", "'dog'", "'m'")),
    ),
    (
        "VAL-57",
        Row(
            f'{IO}§backend: "nothing"',
            "backend",
            ("unable to find backend library", "nothing"),
            {"available": Available(backends=frozenset({"python"}))},
        ),
    ),
]
