"""Repairs: one edit of a text that mends a finding, and how to apply it. Pure; any thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serving.config.tokens import Lines

RepairKind = Literal["replace", "insert", "remove"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `text` in the place of text[start:end]."""

    start: int
    end: int
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class Repair:
    """An edit by lines and columns, for editors. Both count from 1 in characters (not bytes), the
    end is exclusive, and only a line feed ends a line."""

    title: str
    """What a button says: "Write 'dims'"."""
    kind: RepairKind
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """What takes the place; empty for a removal."""


def to_repair(edit: Edit, lines: Lines) -> Repair:
    kind: RepairKind = "replace"
    if edit.start == edit.end:
        kind = "insert"
    elif not edit.text:
        kind = "remove"
    return Repair(edit.title, kind, *lines.place(edit.start), *lines.place(edit.end), edit.text)


def apply_repair(text: str, repair: Repair) -> str:
    """The text with the repair made. It must be the text that the finding is about.

    Raises: ValueError when the text has no such place.
    """
    start = _offset(text, repair.line, repair.column)
    end = _offset(text, repair.end_line, repair.end_column)
    if end < start:
        raise ValueError("the repair ends before it starts")
    return text[:start] + repair.text + text[end:]


def _offset(text: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if start == 0:
            raise ValueError(f"the text has no line {line}")
    end = text.find("\n", start)
    offset = start + column - 1
    if column < 1 or offset > (len(text) if end < 0 else end):
        raise ValueError(f"line {line} has no column {column}")
    return offset


def merged(text: str, edits: Sequence[Edit], title: str) -> Edit | None:
    """Several edits as one that spans them all; None when there are none, or they overlap."""
    ordered = sorted(edits, key=lambda edit: edit.start)
    if not ordered:
        return None
    parts: list[str] = []
    position = ordered[0].start
    for edit in ordered:
        if edit.start < position:
            return None
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return Edit(ordered[0].start, position, "".join(parts), title)
