"""From the messages of a chat to the one prompt that a model reads.

A model says how by its parameters: `chat_template` for each message, with {role} and {content},
`chat_template_<role>` where a role has a form of its own, `chat_template_end` after the last one.
Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from serving.errors import InvalidArgumentError
from serving.protocol.openai.members import MemberError

TEMPLATE = "{role}: {content}\n"
END = "assistant:"
ROLES = ("system", "developer", "user", "assistant", "tool")

_PLACES = re.compile(r"\{(role|content)\}")


def read_messages(value: object) -> list[tuple[str, str]]:
    """(role, text) of each message. Raises MemberError."""
    if not isinstance(value, list) or not value:
        raise MemberError("messages", "'messages' must be given, as a list with a message at least")
    return [_message(item, f"messages[{index}]") for index, item in enumerate(value)]


def _message(value: Any, where: str) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise MemberError(where, f"'{where}' must be an object with role and content")
    role = value.get("role")
    if role not in ROLES:
        raise MemberError(f"{where}.role", f"'{where}.role' must be one of {', '.join(ROLES)}")
    if value.get("tool_calls") or value.get("function_call"):
        raise MemberError(where, f"'{where}': calls of tools are not supported by this server")
    return role, _content(value.get("content"), f"{where}.content")


def _content(value: Any, where: str) -> str:
    """A string, or the texts of a list of parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise MemberError(where, f"'{where}' must be a string or a list of parts")
    texts = []
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise MemberError(where, f"'{where}': only parts of type 'text' are supported")
        if not isinstance(part.get("text"), str):
            raise MemberError(where, f"'{where}': a part of type 'text' needs a string 'text'")
        texts.append(part["text"])
    return "".join(texts)


def prompt_of(messages: Sequence[tuple[str, str]], parameters: Mapping[str, str]) -> str:
    """`parameters`: of the model's config. Raises InvalidArgumentError for a useless template."""
    template = parameters.get("chat_template", TEMPLATE)
    parts = []
    for role, content in messages:
        name = f"chat_template_{role}"
        parts.append(_filled(parameters.get(name, template), role, content))
    return "".join(parts) + parameters.get("chat_template_end", END)


def _filled(template: str, role: str, content: str) -> str:
    if "{content}" not in template:
        raise InvalidArgumentError(
            f"the model's chat template for role '{role}' has no {{content}}: mend the parameter "
            "chat_template in its config"
        )
    # In one pass: what a caller writes may look like a place to fill.
    return _PLACES.sub(lambda place: role if place[1] == "role" else content, template)
