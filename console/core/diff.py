"""The difference of two texts, as lines that a page shows."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiffLine:
    sign: str
    """`+`, `-`, `@` for a place, or a space."""
    text: str

    @property
    def kind(self) -> str:
        return {"+": "added", "-": "removed", "@": "place"}.get(self.sign, "same")


def diff_lines(before: str, after: str, before_name: str, after_name: str) -> list[DiffLine]:
    """A unified diff without its two head lines; empty for equal texts."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), before_name, after_name, lineterm=""
    )
    return [DiffLine(line[0], line if line[0] == "@" else line[1:]) for line in list(lines)[2:]]
