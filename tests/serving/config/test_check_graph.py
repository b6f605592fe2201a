"""An ensemble is checked with the parts that lie beside it."""

from __future__ import annotations

import pytest

from serving.config.check import check_model
from serving.config.check_graph import check_parts, check_users
from serving.config.findings import Severity, errors_of

AT_PARTS = ("VAL-70", "VAL-71")

PART = (
    'backend: "identity"\n'
    'input { name: "x" data_type: TYPE_FP32 dims: [4] }\n'
    'output { name: "y" data_type: TYPE_FP32 dims: [4] }\n'
)


def ensemble(model, key="x", datatype="TYPE_FP32"):
    return (
        'platform: "ensemble"\n'
        f'input {{ name: "A" data_type: {datatype} dims: [4] }}\n'
        'output { name: "B" data_type: TYPE_FP32 dims: [4] }\n'
        "ensemble_scheduling {\n  step {\n"
        f'    model_name: "{model}" model_version: -1\n'
        f'    input_map {{ key: "{key}" value: "A" }}\n'
        '    output_map { key: "y" value: "B" }\n  }\n}\n'
    )


def put(root, name, config):
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    return root / name


def errors(root, text=None):
    check = check_model(root / "e", config_text=text)
    check_parts(check, "e", root)
    return [(item.code, item.line) for item in errors_of(check.findings)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ensemble("part"), []),
        (ensemble("nobody"), [("VAL-70", 6)]),
        (ensemble("../part"), [("VAL-70", 6)]),
        (ensemble("part", key="q"), [("VAL-74", 7), ("VAL-75", 5)]),
        (ensemble("part", datatype="TYPE_INT8"), [("VAL-76", 7)]),
        (ensemble("broken"), [("VAL-71", 6)]),
        (ensemble("e"), [("VAL-72", 6)]),
    ],
)
def test_what_the_parts_make_wrong_is_told_at_its_line(tmp_path, text, expected):
    put(tmp_path, "part", PART)
    put(tmp_path, "broken", PART + "max_batch_size: -1")
    put(tmp_path, "e", text)

    assert errors(tmp_path) == expected
    assert errors(tmp_path, text) == expected


def test_parts_of_inner_ensembles_are_looked_into(tmp_path):
    inner = ensemble("part").replace('"A"', '"x"').replace('"B"', '"y"')
    put(tmp_path, "inner", inner)
    put(tmp_path, "e", ensemble("inner"))

    assert errors(tmp_path) == [("VAL-71", 6)]

    put(tmp_path, "part", PART)
    assert errors(tmp_path) == []


def test_other_models_and_unreadable_ones_are_left_alone(tmp_path):
    put(tmp_path, "e", PART)
    assert errors(tmp_path) == []

    (tmp_path / "e" / "config.pbtxt").write_text("nonsense: 1")
    assert [code for code, _ in errors(tmp_path)] == ["REP-015"]


@pytest.mark.parametrize("model", ["nobody", "broken"])
def test_part_that_may_come_yet_is_a_warning(tmp_path, model):
    put(tmp_path, "broken", PART + "max_batch_size: -1")
    put(tmp_path, "e", ensemble(model))
    check = check_model(tmp_path / "e")

    check_parts(check, "e", tmp_path, parts_may_come=True)

    found = {item.code: item.severity for item in check.findings if item.code in AT_PARTS}
    assert list(found.values()) == [Severity.WARNING]
    assert errors_of(check.findings) == []


def users(root, text):
    check = check_model(root / "part", config_text=text)
    check_users(check, "part", root)
    return [item for item in check.findings if "calls this model" in item.message]


def test_ensembles_that_would_not_fit_to_a_changed_part_are_told(tmp_path):
    put(tmp_path, "part", PART)
    put(tmp_path, "e", ensemble("part"))
    put(tmp_path, "other", PART + 'parameters { key: "ensemble" value { string_value: "part" } }')

    assert users(tmp_path, PART) == []
    (finding,) = users(
        tmp_path, PART.replace('"x" data_type: TYPE_FP32', '"x" data_type: TYPE_BF16')
    )

    assert finding.severity is Severity.WARNING
    assert finding.code == "VAL-76"
    assert "ensemble 'e' calls this model and would not load any more" in finding.message


def test_mistakes_that_an_ensemble_has_anyway_are_not_told_at_its_parts(tmp_path):
    put(tmp_path, "part", PART)
    put(tmp_path, "e", ensemble("part", datatype="TYPE_INT8"))
    assert users(tmp_path, PART) == []
