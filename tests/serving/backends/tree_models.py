"""The recorded tree models of tests/data/trees, and what the libraries that made them predict."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "data" / "trees"
TOLERANCE = 1e-6
"""Relative. XGBoost and Treelite add the same float32 leaves, in orders of their own, and each has
its own exp: a last digit or two of 24 bits, 1.2e-7, may differ."""


@cache
def recorded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of features as float64, and the scores of each row."""
    record = json.loads((FOLDER / name / "predictions.json").read_text())
    return np.array(record["inputs"]), np.array(record["scores"])


def copy(name: str, file: str, directory: Path) -> None:
    """One file of a model into a version folder."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(FOLDER / name / file, directory / file)


def config(
    model_type: str, out: str = "1", kind: str = "FP32", features: str = "5", **parameters: str
) -> str:
    given = {"model_type": model_type, **parameters}
    return (
        f'name: "m" backend: "fil" max_batch_size: 64\n'
        f'input {{ name: "input__0" data_type: TYPE_{kind} dims: [{features}] }}\n'
        f'output {{ name: "output__0" data_type: TYPE_{kind} dims: [{out}] }}\n'
    ) + "".join(parameter(name, value) for name, value in given.items())


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
