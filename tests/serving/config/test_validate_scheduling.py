"""The rules about dynamic batching, sequence batching and ensembles."""

from __future__ import annotations

import pytest

from serving.config.findings import Severity, errors_of
from tests.serving.config.rules import (
    BASE,
    INT,
    IO,
    control,
    ensemble,
    findings_of,
    sequence,
    step,
    the_error,
)
from tests.serving.config.val_texts import F, S


def dynamic(body, size=4):
    return f"{BASE} {IO} max_batch_size: {size} dynamic_batching {{ {body} }}"


DELAY = "timeout_action: DELAY default_timeout_microseconds: 5"


@pytest.mark.parametrize(
    ("code", "body", "field", "words"),
    [
        ("VAL-07", "preferred_batch_size: [0]", "preferred_batch_size[0]", "must be positive"),
        ("VAL-08", "preferred_batch_size: [2, 8]", "preferred_batch_size[1]", "<= max batch size"),
        ("VAL-09", "priority_levels: 2", "priority_levels", "range [1, 2]"),
        (
            "VAL-09",
            "priority_levels: 2 default_priority_level: 3",
            "default_priority_level",
            "range [1, 2], got 3",
        ),
        (
            "VAL-10",
            "priority_levels: 2 default_priority_level: 1 "
            "priority_queue_policy { key: 3 value {} }",
            "priority_queue_policy[3]",
            "range [1, 2]",
        ),
        (
            "VAL-11",
            "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
            "preserve_ordering",
            "one priority level",
        ),
        (
            "VAL-12",
            f"preserve_ordering: true default_queue_policy {{ {DELAY} }}",
            "default_queue_policy.timeout_action",
            "DELAY",
        ),
        (
            "VAL-13",
            "preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
            f"priority_queue_policy {{ key: 1 value {{ {DELAY} }} }}",
            "priority_queue_policy[1].timeout_action",
            "preserve_ordering",
        ),
    ],
)
def test_rules_about_dynamic_batching(code, body, field, words):
    error = the_error(dynamic(body))

    assert (error.code, error.field) == (code, f"dynamic_batching.{field}")
    assert words in error.message


def test_a_preferred_size_up_to_the_limit_is_fine():
    assert errors_of(findings_of(dynamic("preferred_batch_size: [4]"))) == []


def test_a_queue_policy_without_levels_is_a_warning():
    body = "priority_queue_policy { key: 1 value { max_queue_size: 1 } }"

    (warning,) = [item for item in findings_of(dynamic(body)) if item.severity is not Severity.NOTE]

    assert warning.severity is Severity.WARNING
    assert "has no effect" in warning.message


def test_dynamic_batching_without_a_batch_axis_is_a_warning():
    found = [item for item in findings_of(dynamic("", 0)) if item.severity is Severity.WARNING]

    assert "has no effect" in found[0].message


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        ("VAL-16", f"control_input {{ control {{ {INT} }} }}", "must have a name"),
        (
            "VAL-17",
            control("a", INT) + control("a", f"kind: CONTROL_SEQUENCE_END {INT}"),
            "multiple control kinds",
        ),
        ("VAL-18", control("a", INT) + control("b", INT), "multiple CONTROL_SEQUENCE_START"),
        ("VAL-19", control("a", ""), "must specify either"),
        ("VAL-20", control("a", f"{INT} fp32_false_true: [0, 1]"), "more than one"),
        ("VAL-21", control("a", "int32_false_true: [0]"), "exactly 2 entries"),
        (
            "VAL-22",
            control("a", f"kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 {INT}"),
            "must not specify",
        ),
        (
            "VAL-23",
            control("a", "kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
            "allowed data types",
        ),
        ("VAL-24", "oldest { preferred_batch_size: [9] }", "<= max batch size"),
        ("VAL-24", "oldest { preferred_batch_size: [-1] }", "must be positive"),
        ("VAL-25", "direct { minimum_slot_utilization: 1.5 }", "slot utilization"),
        (
            "VAL-61",
            f"state {{ {S} dims: [1] }} state {{ {S} dims: [1] }}",
            "more than once",
        ),
        (
            "VAL-60",
            f"state {{ {S} dims: [-1] initial_state {{ {F} dims: [-1] zero_data: true }} }}",
            "state dimensions",
        ),
        (
            "VAL-60",
            f"state {{ {S} dims: [2] initial_state {{ {F} dims: [3] zero_data: true }} }}",
            "do not match",
        ),
        (
            "VAL-60",
            f"state {{ {S} dims: [2] initial_state {{ {F} dims: [2] }} }}",
            "zero_data or data_file",
        ),
    ],
)
def test_rules_about_sequence_batching(code, body, words):
    error = the_error(sequence(body))

    assert error.code == code
    assert words in error.message
    assert error.field.startswith("sequence_batching.")


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        ("VAL-26", BASE + IO + "ensemble_scheduling { }", "platform is not ensemble"),
        ("VAL-27", 'platform: "ensemble"' + IO, "must be set"),
        ("VAL-28", ensemble(step("A", "B"), "instance_group {}"), "instance group"),
        ("VAL-29", ensemble(step("A", "B"), "optimization {}"), "optimization"),
        ("VAL-30", ensemble(step("A", "B"), "model_warmup {}"), "model_warmup"),
        ("VAL-31", ensemble(""), "must specify 'step'"),
        (
            "VAL-32",
            ensemble(step("A", "B").replace('model_name: "part"', "")),
            "'model_name' in step 0",
        ),
        ("VAL-33", ensemble(step("A", "B") + step("A", "B")), "only once"),
        ("VAL-35", ensemble(step("B", "B")), "is not used"),
        ("VAL-36", ensemble(step("A", ["A2"]) + step(["A2"], ["A3"]) + step(["A3"], "A")), None),
        ("VAL-36", ensemble(step(["A", "b"], "B") + step("B", "b")), "'b', is not connected"),
        ("VAL-37", ensemble(step("A", ["B", "lost"])), "'lost' is unused: step 0 writes it"),
        ("VAL-37", ensemble(step("A", "B") + step(["x"], ["y"]) + step(["y"], ["A9"])), None),
    ],
)
def test_rules_about_ensembles(code, text, words):
    errors = errors_of(findings_of(text))

    matching = [item for item in errors if item.code == code]
    assert matching
    assert words is None or words in matching[0].message


def test_step_that_waits_for_itself_and_feeds_no_output_is_a_warning():
    found = findings_of(ensemble(step("A", "B") + step(["x"], ["x"])))

    (finding,) = [item for item in found if item.code == "VAL-36"]
    assert finding.severity is Severity.WARNING
    assert finding.field == "ensemble_scheduling.step[1]"
