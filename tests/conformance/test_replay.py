"""Every recorded answer matches, except where `known_differences.toml` says why not."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.conformance.replay import DATA, Score, load_cases, replay
from tests.serving.frontends.process import ServerProcess

_START_TIMEOUT_S = 240.0


def server_arguments() -> tuple[str, ...]:
    """The options under which the answers were recorded."""
    return (
        f"--model-repository={DATA / 'models'}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in named_models()),
        "--exit-on-error=false",
        "--strict-readiness=false",
        "--http-header-forward-pattern=X-Fwd-.*",
    )


def named_models() -> list[str]:
    """The models that some case asks for."""
    paths = (case["request"]["path"].split("/") for case in load_cases())
    names = {path[3] for path in paths if path[1:3] == ["v2", "models"] and len(path) > 3}
    return sorted(name for name in names if name and (DATA / "models" / name).is_dir())


def known_differences() -> dict[str, str]:
    """Case -> reason."""
    text = (Path(__file__).parent / "known_differences.toml").read_text(encoding="utf-8")
    return {
        case: reason
        for group in tomllib.loads(text).values()
        for reason, cases in group.items()
        for case in cases
    }


@pytest.fixture(scope="module")
def score() -> Score:
    with ServerProcess(server_arguments(), start_timeout_s=_START_TIMEOUT_S) as server:
        return replay(load_cases(), "127.0.0.1", server.ports["HTTP"])


def test_recorded_answers_match(score: Score, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{score}\n")

    known = known_differences()
    unexpected = {case: text for case, text in score.differences.items() if case not in known}
    assert unexpected == {}


def test_no_known_difference_has_gone(score: Score) -> None:
    assert sorted(set(known_differences()) & set(score.passed)) == []


def test_known_differences_name_recorded_cases() -> None:
    assert set(known_differences()) <= {case["name"] for case in load_cases()}
