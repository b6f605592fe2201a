"""What goes wrong with the files of a repository in real reports, as its check tells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.config.check import check_model
from serving.config.findings import Severity, errors_of
from serving.validate_command import main

CONFIG = (
    'backend: "identity"\n'
    'input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    'output { name: "B" data_type: TYPE_FP32 dims: [ 4 ] }\n'
)


def model(root: Path, *entries: str, config: str = CONFIG) -> Path:
    for entry in entries:
        (root / "m" / entry).mkdir(parents=True)
    (root / "m").mkdir(exist_ok=True)
    (root / "m" / "config.pbtxt").write_text(config)
    return root / "m"


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("", [10]),
        ("latest { num_versions: 2 }", [2, 10]),
        ("all { }", [1, 2, 10]),
        ("specific { versions: [ 1, 10 ] }", [1, 10]),
    ],
)
def test_c11_only_integers_are_versions_and_the_rest_is_a_warning(tmp_path, policy, versions):
    section = f"version_policy {{ {policy} }}\n" if policy else ""
    path = model(
        tmp_path, "1", "2", "10", "03", "v4", ".ipynb_checkpoints", config=CONFIG + section
    )
    (path / "5").touch()

    check = check_model(path)

    assert errors_of(check.findings) == []
    assert check.versions == versions
    warned = {item.file for item in check.findings if item.severity is Severity.WARNING}
    assert warned == {"03", "v4", ".ipynb_checkpoints", "5"}


@pytest.mark.parametrize(
    ("entries", "config"),
    [
        (["03"], CONFIG),
        ([], CONFIG),
        (["1"], f"{CONFIG}version_policy {{ specific {{ versions: [ 7 ] }} }}\n"),
    ],
)
def test_c11_no_usable_version_is_an_error_that_says_why(tmp_path, entries, config):
    errors = errors_of(check_model(model(tmp_path, *entries, config=config)).findings)

    assert [item.code for item in errors] == ["REP-006"]
    assert "at least one version must be available" in errors[0].message


def test_c02_one_click_gives_a_copied_folder_its_own_name(tmp_path, capsys):
    path = model(tmp_path, "1", config=f'name: "dog"\n{CONFIG}')

    assert main([str(path), "--json"]) == 1

    (finding,) = [
        item
        for item in json.loads(capsys.readouterr().out)["models"][0]["findings"]
        if item["severity"] == "error"
    ]
    assert "'dog'" in finding["message"]
    assert "'m'" in finding["message"]
    assert finding["repair"]["text"] == '"m"'


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ('{"inputs": []}', "inputs"),
        ('{"input": [{"name": "A", "datatype": "FP32"}]}', "datatype"),
        ('{"parameters": [{"key": "k", "value": {"string_value": "v"}}]}', "map"),
        ("[]", "Invalid config override"),
    ],
)
def test_c21_wrong_overrides_are_told_before_a_load(tmp_path, override, words):
    (error,) = errors_of(check_model(model(tmp_path, "1"), override=override).findings)

    assert words in error.message


def test_c21_a_good_override_stands_for_the_file(tmp_path):
    check = check_model(
        model(tmp_path, "1"),
        override='{"backend": "identity", "parameters": {"k": {"string_value": "v"}}}',
    )

    assert errors_of(check.findings) == []
    assert check.effective.parameters["k"].string_value == "v"
    assert check.origins["backend"] == "override"
