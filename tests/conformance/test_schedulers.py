"""Every scenario of side_by_side comes out as on a real Triton, whose outcomes are recorded.

What differs is listed with its reason in `known_scheduler_differences.toml`.
"""

from __future__ import annotations

import pytest

from tests.conformance.side_by_side import compare
from tests.conformance.side_by_side.__main__ import play
from tests.conformance.side_by_side.compare import Comparison

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


_TRIES = 3
"""Scenarios depend on who sleeps how long, which a busy machine may stretch. What differs is played
again, and what differs every time is a difference."""


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    wanted, items = compare.load_recorded(), compare.scenarios()
    got = play(items, "conch")
    told = compare.compare(wanted, got)
    for _ in range(_TRIES - 1):
        names = {line.split()[0] for line in [*told.unexplained, *told.gone]}
        if not names:
            break
        got |= play([item for item in items if item.name in names], "conch")
        told = compare.compare(wanted, got)
    return told


def test_scenarios_come_out_as_on_a_real_triton(comparison: Comparison) -> None:
    assert comparison.unexplained == []


def test_no_known_difference_has_gone(comparison: Comparison) -> None:
    assert comparison.gone == []


def test_every_scenario_is_recorded_and_every_difference_names_one() -> None:
    names = {item.name for item in compare.scenarios()}

    assert set(compare.load_recorded()) == names
    assert {entry.split()[0] for entry in compare.known_differences()} <= names
