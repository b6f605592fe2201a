"""One server, what a real Triton was asked, and what it did: loads first, then recorded requests.

Model by model, a load ends as it does in a real Triton, and every recorded answer matches, except
where `known_load_differences.toml` and `known_differences.toml` say why not. The loads were
recorded with `load_outcomes` from Triton 2.51 on a machine without GPU.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import load_outcomes
from tests.conformance.replay import Score, load_cases, replay
from tests.serving.frontends.process import ServerProcess

HERE = Path(__file__).parent
RECORDED: dict[str, str] = json.loads((HERE / "data/loads.json").read_text())
_START_TIMEOUT_S = 120.0


def server_arguments() -> tuple[str, ...]:
    """The options under which both were recorded."""
    roots = (f"--model-repository={root}" for root in load_outcomes.REPOSITORIES)
    return (*roots, *load_outcomes.OPTIONS, "--http-header-forward-pattern=X-Fwd-.*")


def known_differences(name: str) -> dict[str, str]:
    """Case or model -> reason."""
    groups = tomllib.loads((HERE / name).read_text(encoding="utf-8"))
    return {
        case: reason
        for group in groups.values()
        for reason, cases in group.items()
        for case in cases
    }


DIFFERENT_LOADS = known_differences("known_load_differences.toml")
DIFFERENT_ANSWERS = known_differences("known_differences.toml")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(server_arguments(), start_timeout_s=_START_TIMEOUT_S) as server:
        yield server


@pytest.fixture(scope="module")
def outcomes(server: ServerProcess) -> dict[str, str]:
    return load_outcomes.load_all(server.http)


@pytest.fixture(scope="module")
def score(server: ServerProcess, outcomes: dict[str, str]) -> Score:
    """The requests ask for what the loads have brought."""
    return replay(load_cases(), "127.0.0.1", server.ports["HTTP"])


def test_every_model_of_the_repositories_was_recorded() -> None:
    assert sorted(RECORDED) == sorted(load_outcomes.names())


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_load_ends_as_recorded(outcomes: dict[str, str], name: str) -> None:
    agrees = outcomes[name].startswith(RECORDED[name])
    assert agrees is (name not in DIFFERENT_LOADS), outcomes[name]


def test_every_refusal_says_why(outcomes: dict[str, str]) -> None:
    for name, told in outcomes.items():
        if told != "loads":
            assert f"load failed for model '{name}': " in told
            assert len(told) > len(f"refused: load failed for model '{name}': ") + 20


def test_recorded_answers_match(score: Score, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{score}\n")

    unexpected = {
        case: text for case, text in score.differences.items() if case not in DIFFERENT_ANSWERS
    }
    assert unexpected == {}


def test_no_known_difference_has_gone(score: Score) -> None:
    assert sorted(set(DIFFERENT_ANSWERS) & set(score.passed)) == []


def test_known_differences_name_recorded_cases() -> None:
    assert set(DIFFERENT_ANSWERS) <= {case["name"] for case in load_cases()}
    assert set(DIFFERENT_LOADS) <= set(RECORDED)
