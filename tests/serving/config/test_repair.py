"""Repairs: each one mends its finding, and never breaks a config that could be read."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.config.complete import complete
from serving.config.pbtxt import parse
from serving.config.repair import Edit, Repair, apply_repair, merged, to_repair
from serving.config.tokens import Lines
from serving.config.validate import Available, validate
from tests.serving.config.data import BAD, GOOD
from tests.serving.config.rules import BASE, IO

NO_GPU = Available(gpu_count=0, backends=frozenset({"onnxruntime", "python"}))


def findings_of(text, available=NO_GPU):
    parsed = parse(text)
    if parsed.config is not None:
        complete(parsed.config, name="m", model_directory=None)
    return parsed, validate(parsed, directory_name="m", available=available)


def kinds(findings):
    return Counter((item.code, item.field, item.message) for item in findings)


def assert_repairs_hold(text, available=NO_GPU):
    """Make each repair by itself; returns how many there were."""
    parsed, findings = findings_of(text, available)
    made = 0
    for finding in findings:
        if finding.repair is None:
            continue
        made += 1
        mended = apply_repair(text, finding.repair)
        again, left = findings_of(mended, available)
        assert parsed.config is None or again.config is not None, (finding, mended)
        key = (finding.code, finding.field, finding.message)
        assert kinds(left)[key] < kinds(findings)[key], (finding, mended)
    return made


def the_repair(text, code, available=NO_GPU):
    repairs = [item.repair for item in findings_of(text, available)[1] if item.code == code]
    assert repairs
    assert repairs[0] is not None
    return repairs[0]


X = 'name: "x" data_type: TYPE_FP32'


def tensor(body, extra=""):
    return f'{BASE} {extra} input {{ {body} }} output {{ name: "B" data_type: TYPE_FP32 dims: 1 }}'


@pytest.mark.parametrize(
    ("text", "code", "mended"),
    [
        ("max_batchsize: 4 # n\n", "REP-015", "max_batch_size: 4 # n\n"),
        ('default_model_name: "a.onnx"', "REP-015", 'default_model_filename: "a.onnx"'),
        ("a // b\nmax_batch_size: 1", "REP-014", "a # b\nmax_batch_size: 1"),
        ("max_batch_size = 4", "REP-014", "max_batch_size : 4"),
        ("max_batch_size 4", "REP-014", "max_batch_size: 4"),
        ('max_batch_size: "4"', "REP-014", "max_batch_size: 4"),
        ("backend: python", "REP-014", 'backend: "python"'),
        ('"backend": "python"', "REP-014", 'backend: "python"'),
        ("input { data_type: fp32 }", "REP-014", "input { data_type: TYPE_FP32 }"),
        ('input { data_type: "FLOAT" }', "REP-014", "input { data_type: TYPE_FP32 }"),
        ("instance_group { kind: CPU }", "REP-014", "instance_group { kind: KIND_CPU }"),
        ("input { optional: yes }", "REP-014", "input { optional: true }"),
        ("input { dims: [1 2] }", "REP-014", "input { dims: [1 , 2] }"),
        ("input { dims: [1, 2,] }", "REP-014", "input { dims: [1, 2] }"),
        ("max_batch_size: 1,, ", "REP-014", "max_batch_size: 1, "),
        ("input { dims: [1]", "REP-014", "input { dims: [1]\n}"),
        ('backend: "python" }', "REP-014", 'backend: "python" '),
        ('backend: "python\n', "REP-014", 'backend: "python"\n'),
        (r'parameters { key: "C:\data" }', "REP-014", r'parameters { key: "C:\\data" }'),
        ("max_batch_size: 1\nmax_batch_size: 2\n", "REP-014", "max_batch_size: 1\n"),
        ('\ufeffname: "m"', "REP-014", 'name: "m"'),
    ],
)
def test_mistakes_in_the_text_are_mended(text, code, mended):
    assert apply_repair(text, the_repair(text, code)) == mended


@pytest.mark.parametrize(
    ("text", "code", "change"),
    [
        (f'{BASE} {IO} name: "dog"', "VAL-56", ('"dog"', '"m"')),
        (f"{BASE} {IO} max_batch_size: -3", "VAL-05", ("-3", "0")),
        (f'{BASE} {IO} platform: "tensorrt_plan"', "VAL-04", ('platform: "tensorrt_plan"', "")),
        (f'backend: "pyton" {IO}', "VAL-57", ('"pyton"', '"python"')),
        (
            f"{BASE} {IO} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: [2, 8] }}",
            "VAL-08",
            ("8", "4"),
        ),
        (
            f"{BASE} {IO} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: [4, 8] }}",
            "VAL-08",
            (", 8", ""),
        ),
        (
            f"{BASE} {IO} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: [0, 4] }}",
            "VAL-07",
            ("0, ", ""),
        ),
        (
            f"{BASE} {IO} max_batch_size: 4 dynamic_batching {{ priority_levels: 3 }}",
            "VAL-09",
            ("levels: 3", "levels: 3 default_priority_level: 2"),
        ),
        (tensor(f"{X} dims: [2, 0]"), "VAL-40", ("0", "-1")),
        (tensor(f"{X} dims: 4 reshape {{ }}"), "VAL-42", (" reshape { }", " ")),
        (
            f"{BASE} {IO}\ninstance_group {{\n  kind: KIND_CPU\n  gpus: [0]\n}}\n",
            "VAL-51",
            ("  gpus: [0]\n", ""),
        ),
        (
            f"{BASE} {IO} instance_group {{ kind: KIND_GPU, gpus: [0] count: 2 }}",
            "VAL-52",
            ("KIND_GPU, gpus: [0] ", "KIND_CPU, "),
        ),
        (f"{BASE} {IO} instance_group {{ count: 0 }}", "CFG-062", ("count: 0", "count: 1")),
        (
            f'{BASE} {IO} model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "A" '
            f"value {{ data_type: TYPE_FP32 dims: 4 }} }} }}",
            "VAL-62",
            ("value { data", "value { zero_data: true data"),
        ),
    ],
)
def test_broken_rules_are_mended(text, code, change):
    repair = the_repair(text, code)

    mended = apply_repair(text, repair)

    if repair.kind == "remove":
        assert len(mended) < len(text)
    assert mended.split() == text.replace(*change, 1).split() or mended == text.replace(*change, 1)
    assert assert_repairs_hold(text) >= 1


def test_the_batch_axis_goes_out_of_every_tensor_at_once():
    text = (
        'backend: "python" max_batch_size: 8\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } # kept\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }\n'
    )

    mended = apply_repair(text, the_repair(text, "CFG-033"))

    assert mended == text.replace("[-1, 3]", "[3]").replace("[-1, 2]", "[2]")


@pytest.mark.parametrize("name", sorted(BAD))
def test_every_repair_of_a_recorded_bad_config_holds(name):
    assert_repairs_hold(BAD[name])


DAMAGE = ["//", "=", '"', "}", "{", ",", ";", "x", "-", "0", "]", "\r", "é", "gpus: [0] ", "\\q"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1).map(Random), st.sampled_from(sorted({**GOOD, **BAD})))
def test_every_repair_of_a_damaged_config_holds(random, name):
    text = {**BAD, **GOOD}[name]
    for _ in range(random.randint(1, 3)):
        start = random.randint(0, len(text))
        text = text[:start] + random.choice(DAMAGE) + text[start + random.randint(0, 2) :]

    assert_repairs_hold(text)


@given(st.text("ab\n\r é😀", max_size=12), st.data())
def test_places_by_line_and_column_are_the_offsets_again(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))

    repair = to_repair(Edit(start, end, "N", ""), Lines(text))

    assert apply_repair(text, repair) == text[:start] + "N" + text[end:]


@pytest.mark.parametrize("place", [(3, 1, 3, 1), (1, 9, 1, 9), (1, 2, 1, 1), (1, 0, 1, 1)])
def test_a_repair_of_another_text_is_refused(place):
    with pytest.raises(ValueError, match="line|column|ends"):
        apply_repair("ab\ncd", Repair("", "replace", place[0], place[1], place[2], place[3], ""))


def test_overlapping_edits_are_not_merged():
    assert merged("abc", [Edit(0, 2, "", ""), Edit(1, 3, "", "")], "") is None
    assert merged("abc", [], "") is None


def test_json_of_a_finding_carries_its_repair():
    finding = parse("max_batchsize: 4").findings[0]

    assert finding.as_dict()["repair"] == {
        "title": "Write max_batch_size",
        "kind": "replace",
        "line": 1,
        "column": 1,
        "end_line": 1,
        "end_column": 14,
        "text": "max_batch_size",
    }
