"""Make the tree models of this folder, and what the libraries that trained them predict.

Not part of a test run: the files are committed. In an environment of its own,

    pip install xgboost==3.2.0 lightgbm scikit-learn treelite==4.8.1
    python tests/data/trees/generate.py

and, for the binary format that XGBoost has written no more since its version 2,

    pip install xgboost==1.7.6 'numpy<2'
    python tests/data/trees/generate.py legacy

All data is random, with a seed. `<model>/predictions.json` holds rows of features (NaN is a missing
value) and the answers: `scores` of the library's predict or predict_proba, a row for each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FEATURES, ROWS, SHOWN = 5, 400, 12
LEGACY = {"objective": "binary:logistic", "max_depth": 3, "seed": 7}


def data(*, missing: bool = False, categories: int = 0):
    """Features as float32, the last one a category where asked for, and a score to learn."""
    random = np.random.default_rng(7)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    score = x[:, 0] - 2 * x[:, 1] * x[:, 2] + random.normal(scale=0.2, size=ROWS)
    if categories:
        x[:, -1] = random.integers(0, categories, ROWS)
        score += np.where(x[:, -1] % 3 == 1, 2.0, -1.0)
    if missing:
        x[random.random(x.shape) < 0.1] = np.nan
    return x, score


def binary(score):
    return (score > 0).astype(int)


def three(score):
    return np.digitize(score, np.quantile(score, [0.33, 0.66]))


def keep(name: str, x, scores) -> Path:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    record = {
        "inputs": [[float(value) for value in row] for row in x[:SHOWN]],
        "scores": np.asarray(scores, np.float64).reshape(SHOWN, -1).tolist(),
    }
    (folder / "predictions.json").write_text(json.dumps(record, indent=1) + "\n")
    return folder


def xgboost_models() -> None:
    import treelite
    import xgboost

    def train(x, y, types=None, **options):
        matrix = xgboost.DMatrix(x, y, feature_types=types, enable_categorical=types is not None)
        shown = xgboost.DMatrix(
            x[:SHOWN], feature_types=types, enable_categorical=types is not None
        )
        booster = xgboost.train({"max_depth": 3, "seed": 7, **options}, matrix, 6)
        return booster, booster.predict(shown)

    x, score = data(missing=True)
    booster, scores = train(x, binary(score), objective="binary:logistic")
    folder = keep("xgboost_binary", x, scores)
    booster.save_model(folder / "xgboost.json")
    booster.save_model(folder / "xgboost.ubj")
    treelite.frontend.from_xgboost(booster).serialize(folder / "checkpoint.tl")

    x, score = data()
    booster, scores = train(x, three(score), objective="multi:softprob", num_class=3)
    booster.save_model(keep("xgboost_three", x, scores) / "xgboost.json")
    booster, scores = train(x, score, objective="reg:squarederror")
    booster.save_model(keep("xgboost_regression", x, scores) / "xgboost.ubj")
    booster, scores = train(
        x, np.stack([score, -score], axis=1), multi_strategy="multi_output_tree", tree_method="hist"
    )
    booster.save_model(keep("xgboost_two_targets", x, scores) / "xgboost.json")

    x, score = data(categories=6)
    types = ["float"] * (FEATURES - 1) + ["c"]
    booster, scores = train(x, score, types, max_cat_to_onehot=1, tree_method="hist")
    booster.save_model(keep("xgboost_categories", x, scores) / "xgboost.json")


def lightgbm_models() -> None:
    import lightgbm

    options = {"num_leaves": 7, "seed": 7, "verbose": -1, "deterministic": True}

    def train(name, x, y, categories=(), **more):
        table = lightgbm.Dataset(x, y, categorical_feature=list(categories))
        booster = lightgbm.train({**options, **more}, table, 6)
        folder = keep(name, x, booster.predict(x[:SHOWN]))
        booster.save_model(folder / "model.txt")

    x, score = data(missing=True, categories=6)
    # Values between two float32: the model must see them as they are.
    exact = x.astype(np.float64) + 1e-9
    exact[:, -1] = x[:, -1]
    train("lightgbm_binary", exact, binary(score), [FEATURES - 1], objective="binary")
    x, score = data()
    train("lightgbm_three", x, three(score), objective="multiclass", num_class=3)


def sklearn_models() -> None:
    import treelite.sklearn
    from sklearn.ensemble import (
        GradientBoostingRegressor,
        HistGradientBoostingClassifier,
        IsolationForest,
        RandomForestClassifier,
    )

    x, score = data()
    small = {"n_estimators": 6, "max_depth": 4, "random_state": 7}
    forests = {
        "sklearn_binary": (RandomForestClassifier(**small), binary(score)),
        "sklearn_three": (RandomForestClassifier(**small), three(score)),
        "sklearn_boosted": (HistGradientBoostingClassifier(max_iter=4), binary(score)),
        "sklearn_regression": (GradientBoostingRegressor(n_estimators=6, random_state=7), score),
    }
    for name, (forest, wanted) in forests.items():
        forest.fit(x, wanted)
        predict = getattr(forest, "predict_proba", forest.predict)
        folder = keep(name, x, predict(x[:SHOWN]))
        treelite.sklearn.import_model(forest).serialize(folder / "checkpoint.tl")
    anomalies = IsolationForest(n_estimators=6, max_samples=32, random_state=7).fit(x)
    folder = keep("sklearn_anomalies", x, -anomalies.score_samples(x[:SHOWN]))
    treelite.sklearn.import_model(anomalies).serialize(folder / "checkpoint.tl")


def legacy_model() -> None:
    import xgboost

    x, score = data(missing=True)
    booster = xgboost.train(LEGACY, xgboost.DMatrix(x, binary(score)), 6)
    folder = keep("xgboost_legacy", x, booster.predict(xgboost.DMatrix(x[:SHOWN])))
    booster.save_model(folder / "xgboost.deprecated")
    (folder / "xgboost.deprecated").rename(folder / "xgboost.model")


if __name__ == "__main__":
    if sys.argv[1:] == ["legacy"]:
        legacy_model()
    else:
        xgboost_models()
        lightgbm_models()
        sklearn_models()
