"""The version policy of a config, in words and as form values."""

from __future__ import annotations

from typing import Any

from serving.config.protobuf import pb
from serving.repository.version_policy import select_versions


def in_words(policy: pb.ModelVersionPolicy) -> str:
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return "all versions"
    if choice == "specific":
        numbers = ", ".join(str(number) for number in policy.specific.versions)
        return f"only {numbers or 'no version'}"
    count = latest_count(policy)
    return "the latest version" if count == 1 else f"the latest {count} versions"


def latest_count(policy: pb.ModelVersionPolicy) -> int:
    """Triton's default is the latest one."""
    return int(policy.latest.num_versions) or 1


def initial(policy: pb.ModelVersionPolicy) -> dict[str, Any]:
    """What the form shows before it is changed."""
    return {
        "kind": policy.WhichOneof("policy_choice") or "latest",
        "latest_count": latest_count(policy),
        "versions": ", ".join(str(number) for number in policy.specific.versions),
    }


def selected(policy: pb.ModelVersionPolicy, available: list[int]) -> list[int]:
    return list(select_versions(policy, available))
