"""Which of the version directories are served (REP-040..042). Pure functions; any thread."""

from __future__ import annotations

from collections.abc import Iterable

from serving.config.protobuf import pb


def select_versions(policy: pb.ModelVersionPolicy, available: Iterable[int]) -> list[int]:
    """The versions that `policy` serves out of those on disk, ascending. May be empty."""
    versions = sorted(set(available))
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return versions
    if choice == "specific":
        wanted = set(policy.specific.versions)
        return [version for version in versions if version in wanted]
    count = policy.latest.num_versions if choice == "latest" else 1
    return versions[-count:] if count else []


def missing_versions(policy: pb.ModelVersionPolicy, available: Iterable[int]) -> list[int]:
    """Versions that the policy names and that have no directory."""
    if policy.WhichOneof("policy_choice") != "specific":
        return []
    return sorted(set(policy.specific.versions) - set(available))


def describe(policy: pb.ModelVersionPolicy) -> str:
    """For people: "latest 2", "all", "specific 1, 3"."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return "all"
    if choice == "specific":
        return "specific " + ", ".join(str(version) for version in policy.specific.versions)
    return f"latest {policy.latest.num_versions if choice == 'latest' else 1}"
