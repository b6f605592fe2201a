"""Which version directories a policy serves (REP-040..042)."""

from __future__ import annotations

import pytest

from serving.config.pbtxt import parse
from serving.repository.version_policy import describe, missing_versions, select_versions


def policy(text):
    return parse(f"version_policy {{ {text} }}").config.version_policy


@pytest.mark.parametrize(
    ("text", "available", "selected"),
    [
        ("", [1, 2, 10], [10]),
        ("latest { num_versions: 2 }", [10, 2, 1], [2, 10]),
        ("latest { num_versions: 9 }", [1, 2], [1, 2]),
        ("latest { num_versions: 0 }", [1, 2], []),
        ("all { }", [10, 1, 2], [1, 2, 10]),
        ("specific { versions: [10, 1, 7] }", [1, 2, 10], [1, 10]),
        ("specific { versions: 7 }", [1, 2], []),
        ("all { }", [], []),
    ],
)
def test_policies_select_versions(text, available, selected):
    assert select_versions(policy(text), available) == selected


def test_versions_named_without_a_directory_are_told():
    assert missing_versions(policy("specific { versions: [1, 7, 3] }"), [1, 2]) == [3, 7]
    assert missing_versions(policy("all { }"), [1]) == []


def test_a_policy_has_words():
    assert describe(policy("")) == "latest 1"
    assert describe(policy("latest { num_versions: 3 }")) == "latest 3"
    assert describe(policy("specific { versions: [1, 3] }")) == "specific 1, 3"
    assert describe(policy("all { }")) == "all"
