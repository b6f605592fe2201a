"""What every file of the repository keeps to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_SUFFIXES = {".py", ".js", ".css", ".html"}
MAX_LINES = 400


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


SOURCES = [path for path in tracked_files() if path.suffix in SOURCE_SUFFIXES]
TOP_LEVEL = {
    *(".ci", ".dockerignore", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md"),
    *("benchmarks", "console", "deploy", "docker-compose.yml", "docs", "examples", "manage.py"),
    *("pyproject.toml", "requirements.lock", "serving", "static", "templates", "tests", "workers"),
}


def test_the_top_level_holds_what_the_architecture_names_and_nothing_else() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} == TOP_LEVEL


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_file_is_longer_than_400_lines(path: Path) -> None:
    if "migrations" in path.parts or "data" in path.parts:
        return

    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    place = re.compile(rb"/(?:root|home/[a-z]+|Users/[A-Za-z]+)/")

    assert [str(path) for path in tracked_files() if place.search(path.read_bytes())] == []


def test_modules_say_what_they_own() -> None:
    packages = ("serving", "workers", "console")
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in packages
        and "migrations" not in path.parts
        and path.read_text().strip()
        and not path.read_text().lstrip().startswith('"""')
    ]

    assert silent == []
