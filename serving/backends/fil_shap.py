"""SHAP values of trees: what each feature adds to a score, exactly and quickly enough, in NumPy.

The path-dependent TreeSHAP, as XGBoost, LightGBM and FIL compute it. On the way to a leaf of value
v, a feature j is known (the row takes those branches: `one` is 1 or 0) or not (the share of the
training's rows that took them: `zero`). The Shapley value of feature i is v (one_i - zero_i) times
the integral over t from 0 to 1 of the product of t one_j + (1 - t) zero_j over the other features:
a polynomial, which the points of Gauss and Legendre integrate without error.

Made once for a model by a load thread and never written to afterwards; instances' threads ask.
Source: spec FIL-02.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_CELLS = 1 << 22
"""Answers of all branches to some rows."""
_PIECE, _ROWS = 1 << 13, 32
"""Features of ways, and rows, that are reckoned at once: about what the caches of a core hold."""
_TEST_FIELDS = ("threshold", "cmp", "default_left", "node_type", "category_list_right_child")
_FIELDS = ("cleft", "cright", "split_index", *_TEST_FIELDS)
_CATEGORICAL = 2
_TESTS = {1: np.equal, 2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal}
"""By the numbers of Treelite's operators."""
_NO_LIMIT = np.float64(2**32 - 1)


class NoCoverError(ValueError):
    """The model does not say how many rows its branches were trained on."""

    def __init__(self) -> None:
        super().__init__(
            "its nodes do not say how many rows they were trained on (sum_hess or data_count)"
        )


class TreeShap:
    """Contributions to the scores as they are before they become probabilities."""

    def __init__(self, model: Any) -> None:
        """Raises: NoCoverError."""
        header = model.get_header_accessor()
        targets = int(header.get_field("num_target")[0])
        classes = int(header.get_field("num_class").max())
        self.score_count = targets * classes
        """Scores of a row."""
        self._features = int(model.num_feature)
        accessors = [model.get_tree_accessor(index) for index in range(model.num_tree)]
        groups = [
            _groups(target, kind, targets, classes)
            for target, kind in zip(
                header.get_field("target_id"), header.get_field("class_id"), strict=True
            )
        ]
        shares: Array = np.ones(self.score_count)
        if header.get_field("average_tree_output")[0]:
            shares = np.bincount(np.concatenate(groups), minlength=self.score_count)
        self._branches = _Branches(accessors)
        self._bias = np.array(header.get_field("base_scores"), np.float64).reshape(-1)
        self._ways: list[_Ways] = []
        members: dict[tuple[int, ...], list[int]] = {}
        for number, group in enumerate(groups):
            members.setdefault(tuple(group), []).append(number)
        for group_key, trees in members.items():
            group = np.array(group_key)
            leaves, values = _leaves(accessors, trees, self._branches.offsets, len(group))
            self._add(group, leaves, values / shares[group])

    def _add(self, groups: Array, leaves: Array, values: Array) -> None:
        way, branch = _climbed(leaves, self._branches.parent)
        reach = np.ones(len(leaves))
        np.multiply.at(reach, way, self._branches.share[branch])
        self._bias[groups] += reach @ values
        self._ways += _ways_to(leaves, values, groups, self._branches)

    def __call__(self, rows: Array) -> Array:
        """[rows, features] -> [rows, scores, features + 1], the last one what no feature adds."""
        found = np.zeros((len(rows), self.score_count, self._features + 1))
        found[:, :, -1] = self._bias
        step = max(1, min(_ROWS, _CELLS // self._branches.count))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            taken = self._branches.taken(rows[part])
            for ways in self._ways:
                ways.add_to(found[part], taken)
        return found


class _Branches:
    """Every branch of every tree: from which node, on what test, by which share of the rows.

    Nodes of all trees are numbered one after the other; a branch has the number of its end.
    """

    def __init__(self, trees: list[Any]) -> None:
        """Raises: NoCoverError."""
        sizes = [len(tree.get_field("cleft")) for tree in trees]
        self.count = sum(sizes)
        self.offsets = np.cumsum([0, *sizes])
        fields = {
            name: np.concatenate([tree.get_field(name) for tree in trees]) for name in _FIELDS
        }
        covers = np.concatenate([_cover(tree) for tree in trees])
        inner = np.flatnonzero(fields["cleft"] != -1)
        starts = np.repeat(self.offsets[:-1], sizes)[inner]
        self._left = starts + fields["cleft"][inner]
        self._right = starts + fields["cright"][inner]
        self.parent = np.full(self.count, -1)
        self.parent[self._left] = self.parent[self._right] = inner
        self.share = np.ones(self.count)
        for ends in (self._left, self._right):
            above = covers[inner]
            self.share[ends] = np.divide(
                covers[ends], above, out=np.zeros(len(inner)), where=above > 0
            )
        self.feature = np.full(self.count, -1)
        self.feature[self._left] = self.feature[self._right] = fields["split_index"][inner]
        self._asked = fields["split_index"][inner]
        self._default = fields["default_left"][inner].astype(bool)
        self._limits = fields["threshold"][inner]
        is_set = fields["node_type"][inner] == _CATEGORICAL
        tests = fields["cmp"][inner]
        self._tests = [
            (test, np.flatnonzero(~is_set & (tests == number))) for number, test in _TESTS.items()
        ]
        self._sets = np.flatnonzero(is_set)
        self._goes_right = fields["category_list_right_child"][inner[self._sets]].astype(bool)
        lists = [item for tree in trees for item in _categories(tree)]
        places = np.repeat(np.arange(len(lists)), [len(item) for item in lists])
        self._categories = (places << 32) + np.concatenate([np.empty(0, np.int64), *lists])

    def taken(self, rows: Array) -> Array:
        """[branches, rows]: which row takes which branch, as Treelite's prediction does."""
        x = rows.T[self._asked]
        goes_left = np.zeros(x.shape, bool)
        for test, places in self._tests:
            if len(places):
                goes_left[places] = test(x[places], self._limits[places, None])
        if len(self._sets):
            asked = x[self._sets]
            goes_left[self._sets] = self._in_set(asked) != self._goes_right[:, None]
        goes_left = np.where(np.isnan(x), self._default[:, None], goes_left)
        taken = np.ones((self.count, len(rows)), bool)
        taken[self._left] = goes_left
        taken[self._right] = ~goes_left
        return taken

    def _in_set(self, x: Array) -> Array:
        can_be = (x >= 0) & (x <= _NO_LIMIT)
        keys = np.where(can_be, x, 0).astype(np.int64)
        keys += np.arange(len(x))[:, None] << 32
        return can_be & np.isin(keys, self._categories)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to leaves that ask for equally many features and add to the same scores."""

    groups: Array
    """[values]: the scores."""
    values: Array
    """[ways, values]: what the leaves add to them."""
    zeros: Array
    """[ways, features]"""
    branches: Array
    """Of all features of all ways, one after the other."""
    begins: Array
    """[ways * features]: where those of each begin."""
    order: Array
    """[ways * features]: sorts them by feature."""
    features: Array
    """Those that there are."""
    runs: Array
    """Where each begins in that order."""

    def add_to(self, found: Array, taken: Array) -> None:
        """`found`: [rows, scores, features + 1]"""
        one = np.logical_and.reduceat(taken[self.branches], self.begins, axis=0)
        one = one.reshape(*self.zeros.shape, -1)
        zero = self.zeros[:, :, None]
        known = (one - zero) * _integrals(one, zero)
        for group, values in zip(self.groups, self.values.T, strict=True):
            added = (known * values[:, None, None]).reshape(self.zeros.size, -1)[self.order]
            found[:, group, self.features] += np.add.reduceat(added, self.runs, axis=0).T


def _integrals(one: Array, zero: Array) -> Array:
    """[ways, features, rows]: for each feature, of the product over all the others."""
    total, others = np.zeros(one.shape), np.empty(one.shape)
    count = one.shape[1]
    for point, weight in zip(*_points(count), strict=True):
        factors = point * one + (1 - point) * zero
        product = weight
        for index in range(count):
            others[:, index] = product
            product = product * factors[:, index]
        product = factors[:, -1]
        for index in range(count - 2, -1, -1):
            others[:, index] *= product
            product = product * factors[:, index]
        total += others
    return total


@cache
def _points(count: int) -> tuple[Array, Array]:
    """Places and weights that integrate a product of `count` - 1 factors exactly, on 0 to 1."""
    points, weights = np.polynomial.legendre.leggauss((count + 1) // 2)
    return (points + 1) / 2, weights / 2


def _ways_to(leaves: Array, values: Array, groups: Array, tree: _Branches) -> Iterator[_Ways]:
    """In pieces that a core's caches hold."""
    way, branch = _climbed(leaves, tree.parent)
    feature = tree.feature[branch]
    order = np.lexsort((feature, way))
    way, branch, feature = way[order], branch[order], feature[order]
    is_new = np.ones(len(way), bool)
    is_new[1:] = (np.diff(way) != 0) | (np.diff(feature) != 0)
    starts = np.flatnonzero(is_new)
    counts = np.bincount(way[starts], minlength=len(leaves))  # features of each way
    order = np.argsort(counts[way], kind="stable")  # ways of equally many together
    way, branch, feature, is_new = way[order], branch[order], feature[order], is_new[order]
    starts = np.flatnonzero(is_new)
    ends = np.append(starts, len(way))
    place = 0
    for count in np.unique(counts[counts > 0]):
        step = max(1, _PIECE // count) * count
        last = place + int(count) * int((counts == count).sum())
        while place < last:
            here = slice(place, min(last, place + step))
            place = here.stop
            branches = branch[ends[here.start] : ends[here.stop]]
            begins = starts[here] - ends[here.start]
            features = feature[starts[here]]
            order = np.argsort(features, kind="stable")
            names, runs = np.unique(features[order], return_index=True)
            yield _Ways(
                groups,
                values[way[starts[here]][:: int(count)]],
                np.multiply.reduceat(tree.share[branches], begins).reshape(-1, count),
                branches,
                begins,
                order,
                names,
                runs,
            )


def _climbed(leaves: Array, parent: Array) -> tuple[Array, Array]:
    """Every branch on the way from each leaf up: number of the way, number of the branch."""
    ways, branches = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    way, node = np.arange(len(leaves)), leaves
    while len(way):
        is_below = parent[node] >= 0
        way, node = way[is_below], node[is_below]
        ways.append(way)
        branches.append(node)
        node = parent[node]
    return np.concatenate(ways), np.concatenate(branches)


def _leaves(
    trees: list[Any], numbers: list[int], offsets: Array, width: int
) -> tuple[Array, Array]:
    """Leaves of the trees with these numbers, and [leaves, width]: their values."""
    leaves, values = [], []
    for number in numbers:
        tree = trees[number]
        ends = np.flatnonzero(tree.get_field("cleft") == -1)
        leaves.append(ends + offsets[number])
        if width == 1:
            values.append(tree.get_field("leaf_value")[ends, None])
        else:
            begins = tree.get_field("leaf_vector_begin")[ends].astype(np.int64)
            values.append(tree.get_field("leaf_vector")[begins[:, None] + np.arange(width)])
    return np.concatenate(leaves), np.concatenate(values).astype(np.float64)


def _categories(tree: Any) -> list[Array]:
    """For each node that asks for a category, in order: those that it asks for."""
    kinds = tree.get_field("node_type")
    held, begins = tree.get_field("category_list"), tree.get_field("category_list_begin")
    ends = tree.get_field("category_list_end")
    return [
        held[int(begins[node]) : int(ends[node])] for node in np.flatnonzero(kinds == _CATEGORICAL)
    ]


def _groups(target: int, kind: int, targets: int, classes: int) -> Array:
    """The scores that a tree's leaves add to, in the order of their values; -1: all of them."""
    numbers = np.arange(targets * classes).reshape(targets, classes)
    numbers = numbers if target < 0 else numbers[target : target + 1]
    numbers = numbers if kind < 0 else numbers[:, kind : kind + 1]
    return numbers.ravel()


def _cover(tree: Any) -> Array:
    """What each node was trained on: weights of rows where the model has them, else counts."""
    count = len(tree.get_field("cleft"))
    for name in ("sum_hess", "data_count"):
        values, present = tree.get_field(name), tree.get_field(f"{name}_present")
        if len(values) == len(present) == count and present.all():
            return np.array(values, np.float64)
    if count == 1:
        return np.ones(1)
    raise NoCoverError
