"""Restricted APIs: kinds of calls that need a header which only some callers know.

Pure: front ends ask. Source: spec HTTP-060, HTTP-A11, GRPC-046, GRPC-A09.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
GRPC_PREFIX = "triton-grpc-protocol-"


@dataclass(frozen=True, slots=True)
class Restriction:
    """Calls of these categories must carry the header with exactly this value."""

    categories: tuple[str, ...]
    header: str
    value: str


class Restrictions:
    def __init__(self, restrictions: Iterable[Restriction], prefix: str = "") -> None:
        """`prefix`: what the transport puts before the name of a header."""
        self._needed = {
            category: ((prefix + item.header).lower(), item.value)
            for item in restrictions
            for category in item.categories
        }

    def __bool__(self) -> bool:
        return bool(self._needed)

    def missing(self, category: str, header: Callable[[str], str | None]) -> str:
        """The name of the header that the call lacks; empty when it may go on.

        `header` finds a value by the name in lower case.
        """
        needed = self._needed.get(category)
        if needed is None or header(needed[0]) == needed[1]:
            return ""
        return needed[0]


def parse(text: str) -> Restriction:
    """`<category>,<category>:<header>=<value>`. Raises ValueError with the reason."""
    names, colon, rest = text.partition(":")
    header, equals, value = rest.partition("=")
    if not colon or not equals or not header.strip() or not value:
        raise ValueError("expects <category>,<category>:<header>=<value>")
    categories = tuple(name.strip() for name in names.split(","))
    for name in categories:
        if name not in CATEGORIES:
            raise ValueError(f"unknown category '{name}'; known are {', '.join(CATEGORIES)}")
    if not header.strip().isascii() or any(character.isspace() for character in header.strip()):
        raise ValueError(f"'{header}' is no name of a header")
    return Restriction(categories, header.strip(), value)


def twice(restrictions: Iterable[Restriction]) -> str:
    """A category that stands in two restrictions, where nobody could tell which holds; or ""."""
    seen: set[str] = set()
    for item in restrictions:
        for category in item.categories:
            if category in seen:
                return category
            seen.add(category)
    return ""
