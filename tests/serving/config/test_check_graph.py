"""An ensemble is checked with the parts that lie beside it."""

from __future__ import annotations

import pytest

from serving.config.check import check_model
from serving.config.check_graph import check_parts
from serving.config.findings import errors_of

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
