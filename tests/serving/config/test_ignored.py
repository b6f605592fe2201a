"""No field is dropped silently: a note says what has no effect here, and why."""

from __future__ import annotations

import pytest

from serving.config.findings import Severity
from serving.config.ignored import GENERATED, IGNORED, ONNX_ONLY, READ_BY_TENSORRT
from tests.serving.config.rules import BASE, IO, findings_of

TEXTS = {
    "cc_model_filenames": 'cc_model_filenames { key: "8.0" value: "a.onnx" }',
    "instance_group.secondary_devices": "instance_group { secondary_devices { device_id: 0 } }",
    "batch_input": ('batch_input { data_type: TYPE_INT32 target_name: "N" source_input: "A" }'),
    "batch_output": 'batch_output { target_name: "B" source_input: "A" }',
    "model_operations": 'model_operations { op_library_filename: "a.so" }',
    "sequence_batching.state.use_same_buffer_for_input_output": (
        'sequence_batching { state { input_name: "s" output_name: "t" '
        "use_same_buffer_for_input_output: true } }"
    ),
    "sequence_batching.state.use_growable_memory": (
        'sequence_batching { state { input_name: "s" output_name: "t" use_growable_memory: true } }'
    ),
    "optimization.priority": "optimization { priority: PRIORITY_MAX }",
    "optimization.gather_kernel_buffer_threshold": (
        "optimization { gather_kernel_buffer_threshold: 2 }"
    ),
    "optimization.eager_batching": "optimization { eager_batching: true }",
}


@pytest.mark.parametrize("field", [*IGNORED, *ONNX_ONLY, *GENERATED])
def test_a_field_without_effect_is_noted_at_its_place(field):
    section, _, name = field.partition(".")
    body = TEXTS.get(field, f"{section} {{ {name} {{ }} }}")
    text = f'backend: "python" {IO}\n{body}'

    notes = [item for item in findings_of(text) if "has no effect" in item.message]

    assert [item.severity for item in notes] == [Severity.NOTE]
    assert f"'{field}'" in notes[0].message
    assert notes[0].line == 2
    assert notes[0].code.startswith("CFG-")


def test_what_is_filled_in_is_not_noted():
    assert not any("no effect" in item.message for item in findings_of(f'backend: "python" {IO}'))


@pytest.mark.parametrize("field", sorted(READ_BY_TENSORRT))
def test_what_tensorrt_reads_is_not_noted_there(field):
    """CFG-065, CFG-081, CFG-082, CFG-087."""
    section, _, name = field.partition(".")
    body = TEXTS.get(field, f"{section} {{ {name} {{ }} }}")
    found = findings_of(f'backend: "tensorrt" {IO}\n{body}')
    assert not any("no effect" in item.message for item in found)


def test_what_onnxruntime_reads_is_not_noted_there():
    found = findings_of(f"{BASE} {IO} optimization {{ graph {{ level: 1 }} }}")

    assert not any("no effect" in item.message for item in found)


def test_buckets_of_a_histogram_that_there_is_not_are_noted():
    text = (
        'model_metrics {{ metric_control {{ metric_identifier {{ family: "{}" }} '
        "histogram_options {{ buckets: [1] }} }} }}"
    )

    known = findings_of(BASE + IO + text.format("nv_inference_first_response_histogram_ms"))
    unknown = findings_of(BASE + IO + text.format("f"))

    assert [item.code for item in known] == []
    assert [(item.severity, item.code) for item in unknown] == [(Severity.NOTE, "CFG-023")]
