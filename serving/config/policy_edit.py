"""Changes the version policy in config.pbtxt text and leaves every other byte as it is.

Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.config.findings import errors_of, one_line
from serving.config.pbtxt import ParsedConfig, parse
from serving.config.protobuf import pb
from serving.config.tokens import END, SYMBOL, tokenize
from serving.errors import InvalidArgumentError

_FIELD = "version_policy"


def set_version_policy(text: str, policy: Mapping[str, Any] | pb.ModelVersionPolicy) -> str:
    """The text with another version policy.

    `policy` is a message, or Triton's JSON: {"latest": {"num_versions": 2}}, {"all": {}},
    {"specific": {"versions": [1, 3]}}.
    Raises: InvalidArgumentError when the text does not parse, or the policy is none.
    """
    wanted = policy if isinstance(policy, pb.ModelVersionPolicy) else _from_mapping(policy)
    parsed = parse(text)
    errors = errors_of(parsed.findings)
    if parsed.config is None or errors:
        raise InvalidArgumentError(f"mend the config first: {one_line(errors[0])}")
    if parsed.has(_FIELD) and parsed.config.version_policy == wanted:
        return text
    line = policy_text(wanted)
    if parsed.has(_FIELD):
        start, end = _span(text, parsed)
        return f"{text[:start]}{line}{text[end:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    separator = "" if not text or text.endswith("\n") else newline
    return f"{text}{separator}{line}{newline}"


def policy_text(policy: pb.ModelVersionPolicy) -> str:
    """One line of config.pbtxt."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        inner = "all { }"
    elif choice == "specific":
        versions = ", ".join(str(version) for version in policy.specific.versions)
        inner = f"specific {{ versions: [ {versions} ] }}"
    else:
        inner = f"latest {{ num_versions: {policy.latest.num_versions} }}"
    return f"{_FIELD} {{ {inner} }}"


def _span(text: str, parsed: ParsedConfig) -> tuple[int, int]:
    """Offsets of the whole field: from its name to its closing bracket."""
    start, value = parsed.places[_FIELD]
    depth = 0
    for token in tokenize(text):
        if token.start < value or token.kind not in (SYMBOL, END):
            continue
        if token.text in ("{", "<"):
            depth += 1
        elif token.text in ("}", ">"):
            depth -= 1
            if depth == 0:
                return start, token.end
    return start, len(text)


def _from_mapping(policy: Mapping[str, Any]) -> pb.ModelVersionPolicy:
    message = pb.ModelVersionPolicy()
    kind = next(iter(policy), "")
    value = policy.get(kind)
    body = value if isinstance(value, Mapping) else {}
    if kind == "all" and len(policy) == 1:
        message.all.SetInParent()
        return message
    if kind == "latest" and len(policy) == 1:
        count = body.get("num_versions", 1)
        if _is_whole(count) and 1 <= count < 2**32:
            message.latest.num_versions = count
            return message
    if kind == "specific" and len(policy) == 1:
        versions = body.get("versions")
        listed = versions if isinstance(versions, list | tuple) else []
        if listed and all(_is_whole(item) and 0 <= item < 2**63 for item in listed):
            message.specific.versions.extend(listed)
            return message
    raise InvalidArgumentError(
        f"{dict(policy)} is no version policy: write latest with num_versions of 1 or more, all, "
        f"or specific with a list of versions"
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
