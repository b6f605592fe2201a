"""The coverage table names a test, which exists, for every row of the specification."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = (ROOT / "tests/data/spec_ids.txt").read_text().split()
TABLE = dict(
    re.findall(
        r"^\| ([A-Z]+-[A-Z]?\d+) \| (.+) \|$",
        (ROOT / "docs/reference/coverage.md").read_text(),
        re.M,
    )
)


@cache
def functions_of(file: Path) -> set[str]:
    """Functions and methods of a test file; `Class::method` for methods."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (item for item in node.body if hasattr(item, "name"))
            names |= {f"{node.name}::{item.name}" for item in inner}
    return names


def test_every_row_is_in_the_table_and_no_other() -> None:
    assert sorted(TABLE) == sorted(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_the_named_tests_exist(row: str) -> None:
    entry = TABLE.get(row, "")
    if entry.startswith("not yet: "):
        return

    named = re.findall(r"`([^`]+)`", entry)

    assert named
    for name in named:
        file, _, function = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert not function or function in functions_of(ROOT / file), name


def test_rules_of_the_shared_table_have_a_row_in_it() -> None:
    """VAL- rows that name the table of rules are really in that table."""
    folder = ROOT / "tests/serving/config"
    texts = "".join(path.read_text() for path in folder.glob("val_rows*.py"))
    texts += (folder / "test_validate_graph.py").read_text()

    absent = [
        row
        for row in ROWS
        if row.startswith("VAL-")
        and ("test_each_rule" in TABLE[row] or "test_rules_between" in TABLE[row])
        and f'"{row}"' not in texts
    ]

    assert absent == []
