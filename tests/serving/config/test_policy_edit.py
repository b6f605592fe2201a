"""Changing the version policy in text, with everything else kept."""

from __future__ import annotations

import pytest

from serving.config.pbtxt import parse
from serving.config.policy_edit import set_version_policy
from serving.errors import InvalidArgumentError

ALL = {"all": {}}
TWO = {"latest": {"num_versions": 2}}
SOME = {"specific": {"versions": [1, 3]}}


def test_a_policy_is_replaced_and_the_rest_kept_byte_for_byte():
    text = '# top\r\nname: "m" # é\r\nversion_policy: < latest { num_versions: 1 } >; # why\r\n\tx'
    text = text.replace("\r\n\tx", "\r\n\tmax_batch_size: 4")

    edited = set_version_policy(text, SOME)

    assert edited == text.replace(
        "version_policy: < latest { num_versions: 1 } >",
        "version_policy { specific { versions: [ 1, 3 ] } }",
    )
    assert list(parse(edited).config.version_policy.specific.versions) == [1, 3]


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("", "version_policy { all { } }\n"),
        ('name: "m"', 'name: "m"\nversion_policy { all { } }\n'),
        ('name: "m" # last', 'name: "m" # last\nversion_policy { all { } }\n'),
        ('name: "m"\r\n', 'name: "m"\r\nversion_policy { all { } }\r\n'),
    ],
)
def test_a_missing_policy_is_added_at_the_end(text, edited):
    assert set_version_policy(text, ALL) == edited


def test_an_equal_policy_leaves_the_text_alone():
    text = "version_policy: {latest:{num_versions:2}}"

    assert set_version_policy(text, TWO) is text


def test_braces_in_remarks_and_strings_do_not_end_the_section():
    text = "version_policy { # }\n latest { num_versions: 3 # }}\n } }\nname: '}'"

    assert set_version_policy(text, ALL) == "version_policy { all { } }\nname: '}'"


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"newest": {}},
        {"latest": {"num_versions": 0}},
        {"latest": {"num_versions": True}},
        {"specific": {"versions": []}},
        {"specific": {"versions": [-1]}},
        {"specific": {}},
        {"all": {}, "latest": {}},
    ],
)
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(InvalidArgumentError, match="is no version policy"):
        set_version_policy("", policy)


def test_a_text_that_does_not_parse_is_not_edited():
    with pytest.raises(InvalidArgumentError, match=r"config.pbtxt:1:17: .*placeholder"):
        set_version_policy("max_batch_size: ${B}", ALL)
