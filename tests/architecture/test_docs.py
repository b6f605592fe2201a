"""The documentation keeps up with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SETTING = re.compile(r"\b(CONCH_[A-Z_]+|DATABASE_URL|REDIS_URL)\b")


def code_of(*packages: str) -> str:
    return "\n".join(
        path.read_text() for package in packages for path in (ROOT / package).rglob("*.py")
    )


def read_settings() -> set[str]:
    """Every variable that code reads from the environment, `_FILE` forms left out."""
    quoted = re.findall(r'"(CONCH_[A-Z_]+|DATABASE_URL|REDIS_URL)"', code_of("console", "workers"))
    return {name.removesuffix("_FILE") for name in quoted}


def test_every_setting_is_in_the_settings_reference() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()

    assert read_settings() - set(SETTING.findall(page)) == set()


def test_the_settings_reference_names_nothing_that_no_code_reads() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    listed = {name.removesuffix("_FILE") for name in re.findall(r"^\| `([A-Z_]+)`", page, re.M)}

    assert listed - read_settings() == set()


@pytest.mark.parametrize("page", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [
        target
        for target in targets
        if not target.startswith(("http://", "https://")) and not (page.parent / target).exists()
    ]

    assert missing == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    records = [path.name for path in (ROOT / "docs/adr").glob("0*.md")]

    assert records
    assert [name for name in records if f"({name})" not in index] == []


def test_the_files_that_the_development_guide_names_exist() -> None:
    guide = (ROOT / "docs/guides/development.md").read_text()
    named = re.findall(r"`((?:console|workers|serving|frontends|protocol)/[\w/]+\.py)`", guide)

    for name in named:
        path = ROOT / name
        assert path.exists() or (ROOT / "serving" / name).exists(), name


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
