"""The graph of ensembles and their parts: load order, consequences, unload_dependents (REP-066)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import InvalidArgumentError
from serving.repository.dependencies import DependencyGraph, parts_of
from tests.serving.loading import config_of

GRAPH = {"outer": ["inner", "c"], "inner": ["a", "b"], "other": ["b"]}


@pytest.fixture
def graph() -> DependencyGraph:
    return DependencyGraph(GRAPH)


def test_parts_of_an_ensemble_are_the_models_of_its_steps():
    config = config_of(
        'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 }, '
        '{ model_name: "b" }, { model_name: "a" } ] }'
    )
    assert parts_of(config) == {"a", "b"}
    assert parts_of(config_of('backend: "identity"')) == frozenset()


def test_rep_058_parts_load_before_the_models_that_need_them(graph):
    assert graph.load_order(["outer", "inner", "a", "b", "c", "other", "single"]) == [
        ["a", "b", "c", "single"],
        ["inner", "other"],
        ["outer"],
    ]


def test_load_order_sees_through_parts_that_are_not_asked_for(graph):
    assert graph.load_order(["outer", "a"]) == [["a"], ["outer"]]


def test_rep_066_users_of_a_model_are_those_that_cannot_do_without_it(graph):
    assert graph.users("b") == {"inner", "other"}
    assert graph.all_users("b") == {"inner", "other", "outer"}
    assert graph.all_parts("outer") == {"inner", "a", "b", "c"}


def test_rep_066_without_the_flag_an_unload_takes_nothing_along(graph):
    assert graph.unload_order("outer", with_parts=False, asked_for=["outer"]) == ["outer"]


def test_rep_066_with_the_flag_parts_nobody_else_uses_go_recursively(graph):
    assert graph.unload_order("outer", with_parts=True, asked_for=["outer", "other"]) == [
        "outer",
        "c",
        "inner",
        "a",
    ]


def test_rep_066_part_that_was_loaded_by_name_stays_and_keeps_its_parts(graph):
    assert graph.unload_order("outer", with_parts=True, asked_for=["outer", "inner"]) == [
        "outer",
        "c",
    ]


def test_rep_066_part_of_two_parts_goes_with_the_second_one():
    graph = DependencyGraph({"e": ["x", "y"], "x": ["shared"], "y": ["shared"]})
    assert set(graph.unload_order("e", with_parts=True, asked_for=["e"])) == {
        "e",
        "x",
        "y",
        "shared",
    }


@pytest.mark.parametrize(
    ("name", "parts", "way"),
    [
        ("a", ["a"], "a > a"),
        ("a", ["outer"], "a > outer > inner > a"),
        ("b", ["other"], "b > other > b"),
    ],
)
def test_model_that_would_need_itself_is_refused_and_nothing_changes(graph, name, parts, way):
    with pytest.raises(InvalidArgumentError, match=way):
        graph.put(name, parts)
    assert graph.parts(name) == frozenset()


def test_removed_model_needs_nobody(graph):
    graph.remove("other")
    assert graph.users("b") == {"inner"}


NAMES = st.sampled_from("abcdefgh")


@given(st.dictionaries(NAMES, st.sets(NAMES, max_size=4)))
def test_any_graph_is_ordered_or_refused(parts):
    graph = DependencyGraph()
    for name, its_parts in parts.items():
        try:
            graph.put(name, its_parts)
        except InvalidArgumentError:
            assert name in {name for part in its_parts for name in [part, *graph.all_parts(part)]}
    groups = graph.load_order("abcdefgh")

    seen: set[str] = set()
    for group in groups:
        assert all(graph.all_parts(name) <= seen for name in group)
        seen.update(group)
    assert seen == set("abcdefgh")
    for name in "abcdefgh":
        left = graph.unload_order(name, with_parts=True, asked_for=[])
        assert len(left) == len(set(left))
        assert set(left) <= {name, *graph.all_parts(name)}
