"""Every load-time rule: a config that breaks exactly it, and what is said of it and where."""

from __future__ import annotations

import pytest

from serving.config.complete import complete
from serving.config.findings import Severity
from serving.config.pbtxt import parse
from serving.config.validate import validate
from serving.config.validate_batcher import validate_resources
from tests.serving.config.val_rows import BASE, ROWS, Row, at_mark


@pytest.fixture
def directory(tmp_path):
    """A model directory "m" with data that is too short, and a library."""
    model = tmp_path / "m"
    for folder in ("warmup", "initial_state"):
        (model / folder).mkdir(parents=True)
        (model / folder / "short").write_bytes(bytes(8))
    (model / "lib.so").write_bytes(b"")
    return model


def findings_of(row: Row, text, directory):
    options = dict(row.options)
    parsed = parse(text)
    assert parsed.config is not None, parsed.findings
    if options.pop("completed", True):
        complete(parsed.config, name="m", model_directory=None)
    return validate(parsed, directory_name="m", model_directory=directory, **options)


UNCOMPLETED = {"VAL-01", "VAL-06", "VAL-50", "VAL-55"}
"""A config that nothing was filled into breaks all of these, and VAL-04 for want of a platform."""


@pytest.mark.parametrize(("code", "row"), ROWS, ids=[code for code, _ in ROWS])
def test_each_rule_is_refused_at_its_place(code, row, directory):
    place, text = at_mark(row.text)

    found = findings_of(row, text, directory)

    grave = [item for item in found if item.severity is row.severity]
    expected = {code} if code not in UNCOMPLETED else {*UNCOMPLETED, "VAL-04"}
    assert {item.code for item in grave} <= expected
    (finding,) = [item for item in grave if item.code == code]
    assert finding.field == row.field
    assert (finding.line, finding.column) == place
    assert all(word in finding.message for word in row.words)
    assert finding.hint


def test_a_resource_needs_the_same_scope_in_every_model():
    """VAL-58 between models."""
    configs = {
        name: parse(
            f'instance_group {{ rate_limiter {{ resources {{ name: "r" global: {word} }} }} }}'
        ).config
        for name, word in (("a", "true"), ("b", "false"))
    }

    found = validate_resources(configs)

    assert list(found) == ["b"]
    assert "present as both global" in found["b"][0].message
    assert found["b"][0].field == "instance_group[0].rate_limiter.resources[0]"


@pytest.mark.parametrize(
    ("body", "limits", "is_refused"),
    [
        ('name: "r" count: 4', {("r", None): 3}, True),
        ('name: "r" count: 4', {("r", None): 4}, False),
        ('name: "r" count: 4', {("r", 1): 3}, True),
        ('name: "r" count: 4', {("r", 1): 4, ("r", None): 3}, False),
        ('name: "r" count: 4 global: true', {("r", 1): 3}, False),
        ('name: "r" count: 4 global: true', {("r", None): 3}, True),
    ],
)
def test_a_count_that_the_command_line_sets_suffices(body, limits, is_refused):
    """VAL-59."""
    text = f"instance_group {{ gpus: [1]\n  rate_limiter {{ resources {{ {body} }} }} }}".replace(
        "count", "§count"
    )
    place, text = at_mark(text)
    parsed = parse(text)

    found = validate_resources({"m": parsed.config}, limits).get("m", [])

    assert [item.code for item in found] == (["VAL-59"] if is_refused else [])
    for item in found:
        assert "is limited to 3" in item.message
        assert "minimum required count is 4" in item.message
        assert item.severity is Severity.ERROR
        finding = parsed.placed(item)
        assert (finding.line, finding.column) == place


def test_a_sound_config_breaks_no_rule(directory):
    assert findings_of(Row(BASE, "", ()), BASE, directory) == []
