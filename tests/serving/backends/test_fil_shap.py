"""SHAP values of trees beside the definition of Shapley, reckoned over every set of features."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest

from serving.backends.fil_files import read_model
from serving.backends.fil_shap import NoCoverError, TreeShap
from serving.errors import ServingError
from tests.serving.backends.tree_models import FOLDER, config, copy, recorded
from tests.serving.loading import load, outputs_of

treelite = pytest.importorskip("treelite", reason="needs treelite: pip install 'conch[fil]'")

# name, file, model_type, scores of a row
MODELS = [
    ("xgboost_binary", "xgboost.json", "xgboost_json", 1),
    ("xgboost_three", "xgboost.json", "xgboost_json", 3),
    ("xgboost_categories", "xgboost.json", "xgboost_json", 1),
    ("xgboost_two_targets", "xgboost.json", "xgboost_json", 2),
    ("lightgbm_three", "model.txt", "lightgbm", 3),
    ("lightgbm_binary", "model.txt", "lightgbm", 1),
    ("sklearn_three", "checkpoint.tl", "treelite_checkpoint", 3),
    ("sklearn_boosted", "checkpoint.tl", "treelite_checkpoint", 1),
    ("sklearn_anomalies", "checkpoint.tl", "treelite_checkpoint", 1),
]
SHAP = 'output {{ name: "treeshap_output" data_type: TYPE_FP32 dims: [{}] }}\n'


def model_of(name, file, kind):
    return read_model(FOLDER / name / file, kind, allows_unknown_fields=False)


def weights_of(tree):
    kind = "sum_hess" if len(tree.get_field("sum_hess")) else "data_count"
    return tree.get_field(kind).astype(float)


def expected_margin(tree, row, known, leaf_of, node=0):
    """What a tree says of a row of which only some features are known."""
    left, right = int(tree.get_field("cleft")[node]), int(tree.get_field("cright")[node])
    if left == -1:
        return leaf_of(tree, node)
    feature = int(tree.get_field("split_index")[node])
    if feature in known:
        goes_left = goes_left_of(tree, node, row[feature])
        return expected_margin(tree, row, known, leaf_of, left if goes_left else right)
    weights = weights_of(tree)
    return (
        weights[left] * expected_margin(tree, row, known, leaf_of, left)
        + weights[right] * expected_margin(tree, row, known, leaf_of, right)
    ) / weights[node]


def goes_left_of(tree, node, x):
    if np.isnan(x):
        return bool(tree.get_field("default_left")[node])
    if tree.get_field("node_type")[node] == 2:
        start, end = (
            int(tree.get_field(f"category_list_{edge}")[node]) for edge in ("begin", "end")
        )
        is_in = int(x) in tree.get_field("category_list")[start:end]
        return is_in != bool(tree.get_field("category_list_right_child")[node])
    limit = tree.get_field("threshold")[node]
    return bool(x < limit if tree.get_field("cmp")[node] == 2 else x <= limit)


def by_definition(model, row):
    """[scores, features + 1]"""
    header = model.get_header_accessor()
    kinds = zip(header.get_field("target_id"), header.get_field("class_id"), strict=True)
    classes = int(header.get_field("num_class").max())
    count = int(header.get_field("num_target")[0]) * classes
    trees = [model.get_tree_accessor(index) for index in range(model.num_tree)]
    places = [
        np.arange(count) if -1 in (target, kind) else np.array([target * classes + kind])
        for target, kind in kinds
    ]

    def leaf_of(tree, node):
        if not len(tree.get_field("leaf_vector")):
            return tree.get_field("leaf_value")[node].astype(float)
        start = int(tree.get_field("leaf_vector_begin")[node])
        return tree.get_field("leaf_vector")[start : start + count].astype(float)

    def game(known):
        total = np.zeros(count)
        for tree, place in zip(trees, places, strict=True):
            total[place] += expected_margin(tree, row, known, leaf_of)
        if header.get_field("average_tree_output")[0]:
            total /= len(trees)
        return total + header.get_field("base_scores")

    players = range(len(row))
    values = {
        known: game(frozenset(known))
        for size in range(len(row) + 1)
        for known in combinations(players, size)
    }
    found = np.zeros((count, len(row) + 1))
    found[:, -1] = values[()]
    for player in players:
        for known in values:
            if player not in known:
                weight = factorial(len(known)) * factorial(len(row) - len(known) - 1)
                joined = tuple(sorted((*known, player)))
                gain = values[joined] - values[known]
                found[:, player] += weight / factorial(len(row)) * gain
    return found


@pytest.mark.parametrize(("name", "file", "kind", "count"), MODELS)
def test_values_are_those_of_shapleys_definition(name, file, kind, count):
    """FIL-02: missing values and categories as well."""
    model, rows = model_of(name, file, kind), recorded(name)[0][:2]
    shap = TreeShap(model)

    values = shap(rows)

    assert values.shape == (2, count, rows.shape[1] + 1)
    for row, value in zip(rows, values, strict=True):
        np.testing.assert_allclose(value, by_definition(model, row), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "file", "kind", "count"), MODELS)
def test_the_values_of_a_row_add_up_to_its_raw_score(name, file, kind, count):
    """A row beside others gets what it gets alone."""
    model, rows = model_of(name, file, kind), np.tile(recorded(name)[0], (9, 1))
    rows[0], rows[1] = np.nan, 1e30

    values = TreeShap(model)(rows)

    raw = treelite.gtil.predict(model, rows, pred_margin=True).reshape(len(rows), count)
    np.testing.assert_allclose(values.sum(axis=-1), raw, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values[-1:], TreeShap(model)(rows[-1:]), rtol=1e-9, atol=1e-12)


def chain_of(count, *, counts_rows):
    """A tree that asks for one feature after the other; only a row of ones gets to its end."""
    make = treelite.model_builder
    builder = make.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=make.Metadata(
            num_feature=count,
            task_type="kRegressor",
            average_tree_output=False,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=make.TreeAnnotation(num_tree=1, target_id=[0], class_id=[0]),
        postprocessor=make.PostProcessorFunc(name="identity"),
        base_scores=[0.0],
    )
    builder.start_tree()
    for node in range(2 * count + 1):
        builder.start_node(node)
        if node % 2 or node == 2 * count:
            builder.leaf(float(node == 2 * count))
        else:
            builder.numerical_test(
                feature_id=node // 2,
                threshold=0.5,
                default_left=True,
                opname="<",
                left_child_key=node + 1,
                right_child_key=node + 2,
            )
        if counts_rows:
            builder.data_count(2 ** (count - (node + 1) // 2))
        builder.end_node()
    builder.end_tree()
    return builder.commit()


def test_a_way_that_asks_for_many_features_is_exact():
    """Every feature adds the same."""
    values = TreeShap(chain_of(40, counts_rows=True))(np.ones((1, 40)))

    np.testing.assert_allclose(values[0, 0, :40], (1 - 2.0**-40) / 40, rtol=1e-12)
    assert values[0, 0, 40] == pytest.approx(2.0**-40)


def test_a_model_that_does_not_count_its_rows_has_none():
    with pytest.raises(NoCoverError, match="do not say how many rows they were trained on"):
        TreeShap(chain_of(1, counts_rows=False))


async def asked(tmp_path, name, text, rows, **more):
    copy(name, "xgboost.json", tmp_path / "1")
    model = await load(text, tmp_path)
    outputs = await outputs_of(model, {"input__0": rows.astype(np.float32)}, **more)
    await model.drain_and_close()
    return outputs


@pytest.mark.parametrize(
    ("name", "dims", "shape"),
    [("xgboost_binary", "6", (12, 6)), ("xgboost_three", "3, 6", (12, 3, 6))],
)
async def test_the_output_has_a_place_for_each_feature_and_one_for_the_rest(
    tmp_path, name, dims, shape
):
    """FIL-02: FIL's shapes; a model of several classes tells each of them."""
    rows, _ = recorded(name)

    outputs = await asked(tmp_path, name, config("xgboost_json") + SHAP.format(dims), rows)

    assert outputs["treeshap_output"].shape == shape
    assert outputs["treeshap_output"].dtype == np.float32
    wanted = TreeShap(model_of(name, "xgboost.json", "xgboost_json"))(rows).reshape(shape)
    np.testing.assert_allclose(outputs["treeshap_output"], wanted, rtol=1e-5, atol=1e-6)


async def test_one_row_without_a_batch_axis_has_one_row_of_values(tmp_path):
    rows, _ = recorded("xgboost_binary")
    text = (config("xgboost_json") + SHAP.format("6")).replace("size: 64", "size: 0")

    outputs = await asked(tmp_path, "xgboost_binary", text, rows[0])

    assert outputs["treeshap_output"].shape == (6,)


@pytest.mark.parametrize(
    ("dims", "words"),
    [("5", "write dims: [3, 6]"), ("6", "write dims: [3, 6]"), ("3, 5", "write dims: [3, 6]")],
)
async def test_other_dims_are_refused_with_those_to_write(tmp_path, dims, words):
    copy("xgboost_three", "xgboost.json", tmp_path / "1")

    with pytest.raises(ServingError) as caught:
        await load(config("xgboost_json") + SHAP.format(dims), tmp_path)

    assert words in caught.value.message
