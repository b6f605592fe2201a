"""Model by model, a load ends as it does in a real Triton, but for a list of reasons.

The outcomes were recorded with `load_outcomes` from Triton 2.51 on a machine without GPU.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.conformance import load_outcomes
from tests.serving.frontends.process import ServerProcess

HERE = Path(__file__).parent
RECORDED: dict[str, str] = json.loads((HERE / "data/loads.json").read_text())
DIFFERENT = {
    name
    for reasons in tomllib.loads((HERE / "known_load_differences.toml").read_text()).values()
    for names in reasons.values()
    for name in names
}
_START_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    roots = (f"--model-repository={root}" for root in load_outcomes.REPOSITORIES)
    arguments = (*roots, *load_outcomes.OPTIONS)
    with ServerProcess(arguments, start_timeout_s=_START_TIMEOUT_S) as server:
        return load_outcomes.load_all(f"127.0.0.1:{server.ports['HTTP']}")


def test_every_model_of_the_repositories_was_recorded() -> None:
    assert sorted(RECORDED) == sorted(load_outcomes.names())


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_load_ends_as_recorded(outcomes: dict[str, str], name: str) -> None:
    agrees = outcomes[name].startswith(RECORDED[name])
    assert agrees is (name not in DIFFERENT), outcomes[name]


def test_every_refusal_says_why(outcomes: dict[str, str]) -> None:
    for name, told in outcomes.items():
        if told != "loads":
            assert f"load failed for model '{name}': " in told
            assert len(told) > len(f"refused: load failed for model '{name}': ") + 20
