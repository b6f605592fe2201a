"""Which configs load and which are refused: the same as a real Triton, but for a list of reasons.

The outcomes were recorded by loading each case of `config_cases` into Triton 2.51 on a machine
without GPU.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from serving.config.findings import Severity, errors_of, one_line
from serving.config.pbtxt import parse
from serving.validate_command import check_paths
from tests.conformance.config_cases import CASES, MODEL

HERE = Path(__file__).parent
OUTCOMES: dict[str, str] = json.loads((HERE / "data/config_outcomes.json").read_text())
TEXTS: list[dict[str, Any]] = json.loads((HERE / "data/config_texts.json").read_text())
"""Damaged configs, and whether Triton's parser reads them."""
VARIANTS: list[dict[str, str]] = json.loads((HERE / "data/config_variants.json").read_text())
"""Configs with a value or a field changed at random; those that differ on purpose are left out."""
DIFFERENCES = tomllib.loads((HERE / "known_config_differences.toml").read_text())
DIFFERENT = {
    name for reasons in DIFFERENCES.values() for names in reasons.values() for name in names
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Model -> its errors, with all cases in one repository."""
    root = tmp_path_factory.mktemp("repository")
    for name, text in CASES.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text(MODEL)
        (root / name / "config.pbtxt").write_text(text, encoding="utf-8")
    return {
        model.name: [
            one_line(item) for item in model.check.findings if item.severity is Severity.ERROR
        ]
        for model in check_paths([root], gpu_count=0)
    }


def test_every_case_has_a_recorded_outcome() -> None:
    assert set(OUTCOMES) == set(CASES)
    assert set(CASES) >= DIFFERENT


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_outcome_is_the_recorded_one(name: str, errors: dict[str, list[str]]) -> None:
    outcome = "refused" if errors[name] else "loads"

    assert (outcome == OUTCOMES[name]) == (name not in DIFFERENT), errors[name]


def test_every_intended_difference_is_explained_to_users() -> None:
    page = (HERE.parents[1] / "docs/reference/differences.md").read_text()
    recorded = tomllib.loads((HERE / "known_differences.toml").read_text())

    unexplained = [
        reason
        for reason in [*DIFFERENCES["intended"], *DIFFERENCES["hangs"], *recorded["intended"]]
        if reason not in page
    ]

    assert unexplained == []


def test_the_same_texts_are_read_and_refused() -> None:
    differing = [
        case["text"]
        for case in TEXTS
        if (not errors_of(parse(case["text"]).findings)) != case["parses"]
    ]

    assert differing == []


def test_the_same_variants_load_and_are_refused(tmp_path: Path) -> None:
    for index, case in enumerate(VARIANTS):
        model = tmp_path / f"k{index}"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(MODEL)
        (model / "config.pbtxt").write_text(case["text"])

    checked = {model.name: model for model in check_paths([tmp_path], gpu_count=0)}

    differing = []
    for index, case in enumerate(VARIANTS):
        errors = errors_of(checked[f"k{index}"].check.findings)
        if ("refused" if errors else "loads") != case["outcome"]:
            differing.append((case, [one_line(item) for item in errors]))
    assert differing == []
