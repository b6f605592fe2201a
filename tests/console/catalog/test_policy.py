"""Version policies in words and from the form."""

from __future__ import annotations

from typing import Any

import pytest

from console.catalog import policy as policies
from console.catalog.forms import ConfigForm, PolicyForm
from serving.config.protobuf import pb


def latest(count: int) -> pb.ModelVersionPolicy:
    return pb.ModelVersionPolicy(latest=pb.ModelVersionPolicy.Latest(num_versions=count))


def specific(*numbers: int) -> pb.ModelVersionPolicy:
    return pb.ModelVersionPolicy(specific=pb.ModelVersionPolicy.Specific(versions=numbers))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (pb.ModelVersionPolicy(), "the latest version"),
        (latest(3), "the latest 3 versions"),
        (pb.ModelVersionPolicy(all=pb.ModelVersionPolicy.All()), "all versions"),
        (specific(1, 3), "only 1, 3"),
    ],
)
def test_policies_in_words(policy: pb.ModelVersionPolicy, words: str) -> None:
    assert policies.in_words(policy) == words


@pytest.mark.parametrize("policy", [latest(2), specific(1, 3), pb.ModelVersionPolicy()])
def test_the_form_shows_the_policy_and_gives_it_back(policy: pb.ModelVersionPolicy) -> None:
    form = PolicyForm({key: str(value) for key, value in policies.initial(policy).items()})

    assert form.is_valid(), form.errors
    chosen = form.policy
    if policy.WhichOneof("policy_choice") == "specific":
        assert chosen == {"specific": {"versions": [1, 3]}}
    else:
        assert chosen == {"latest": {"num_versions": policies.latest_count(policy)}}


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ({"kind": "latest"}, "latest_count", "Say how many"),
        ({"kind": "latest", "latest_count": "0"}, "latest_count", "greater than or equal to 1"),
        ({"kind": "specific", "versions": ""}, "versions", "Name at least one version."),
        ({"kind": "specific", "versions": "1, x"}, "versions", "'x' is not a version"),
        ({"kind": "specific", "versions": "-1"}, "versions", "'-1' is not a version"),
        ({"kind": "newest"}, "kind", "not one of the available choices"),
    ],
)
def test_wrong_policies_say_what_to_mend(data: dict[str, Any], field: str, message: str) -> None:
    form = PolicyForm(data)

    assert not form.is_valid()
    assert message in form.errors[field][0]


def test_line_breaks_of_a_browser_become_those_of_the_file() -> None:
    form = ConfigForm({"text": "  name: 'm'\r\n\r\n", "expected_sha256": ""})

    assert form.is_valid()
    assert form.cleaned_data["text"] == "  name: 'm'\n\n"
