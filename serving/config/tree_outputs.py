"""What a config asks of a tree model, and what `output__0` holds for it (FIL-01..03).

Looks at the names of files only; any thread. Names and meanings after the documentation of Triton's
FIL backend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.config.signature import Signature, TensorSignature
from serving.config.signature_trees import FILENAMES, TreeSignature
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError

INPUT, OUTPUT, SHAP_OUTPUT = "input__0", "output__0", "treeshap_output"
DEFAULT_MODEL_TYPE = "xgboost"

WITHOUT_EFFECT = {
    "algo": "it chooses among GPU kernels",
    "storage_type": "trees lie in memory as Treelite lays them",
    "blocks_per_sm": "it belongs to GPU kernels",
    "threads_per_tree": "it belongs to GPU kernels",
    "chunk_size": "it belongs to GPU kernels",
    "use_experimental_optimizations": "trees run in Treelite's own library",
    "transfer_threshold": "requests are never moved between GPU and CPU",
}
"""Parameters of FIL that are accepted: trees run on the CPU here."""

_WORDS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class TreeParameters:
    model_type: str = DEFAULT_MODEL_TYPE
    wants_class: bool | None = None
    """True: a label, False: a score; None: what the model was trained for."""
    wants_probabilities: bool = False
    threshold: float = 0.5
    """Above it, the score of a model with one score is class 1."""
    thread_count: int | None = None
    """None: by the number of rows; 0: every core."""
    allows_unknown_fields: bool = False
    """In XGBoost's JSON and UBJSON files, which grow from version to version."""

    @property
    def filename(self) -> str:
        return FILENAMES[self.model_type]


def read_tree_parameters(values: Mapping[str, str]) -> TreeParameters:
    """Raises: InvalidArgumentError naming parameter and value."""
    model_type = values.get("model_type", DEFAULT_MODEL_TYPE)
    if model_type not in FILENAMES:
        raise _bad("model_type", model_type, f"one of {', '.join(FILENAMES)}")
    wants_class = _flag(values, "is_classifier")
    older_name = _flag(values, "output_class")
    if wants_class is not None and older_name is not None and wants_class != older_name:
        raise InvalidArgumentError(
            "parameters 'is_classifier' and 'output_class' contradict each other: they are two "
            "names of one setting, keep one"
        )
    return TreeParameters(
        model_type,
        older_name if wants_class is None else wants_class,
        bool(_flag(values, "predict_proba")),
        _threshold(values),
        _thread_count(values),
        bool(_flag(values, "xgboost_allow_unknown_field")),
    )


def other_type(version_directory: Path, parameters: TreeParameters) -> str:
    """The model_type whose file lies there where that of the parameters does not, or ""."""
    if (version_directory / parameters.filename).exists():
        return ""
    return next(
        (kind for kind, name in FILENAMES.items() if (version_directory / name).exists()), ""
    )


def output_width(trees: TreeSignature, parameters: TreeParameters) -> int:
    """Values in `output__0` for each row.

    Raises: InvalidArgumentError where the config asks for what such a model does not tell.
    """
    is_label = gives_label(trees, parameters)
    if trees.targets > 1 and (is_label or gives_probabilities(trees, parameters)):
        raise InvalidArgumentError(
            f"the model predicts {trees.targets} targets, and classes are told for one: set "
            "output_class to false for the scores, or train one model for each target"
        )
    if gives_probabilities(trees, parameters):
        return max(2, trees.classes)
    return 1 if is_label else trees.classes * trees.targets


def shap_shape(trees: TreeSignature) -> tuple[int, ...]:
    """Of `treeshap_output` for a row: what each feature adds to each score, and what none adds."""
    scores = trees.classes * trees.targets
    return (trees.features + 1,) if scores == 1 else (scores, trees.features + 1)


def shap_problem(dims: Sequence[int], trees: TreeSignature) -> str:
    """What is wrong with the dims of `treeshap_output`, without batch axis, or ""."""
    shape = shap_shape(trees)
    fits = len(dims) == len(shape) and all(
        dim in (-1, want) for dim, want in zip(dims, shape, strict=True)
    )
    return "" if fits else f"write dims: {list(shape)}"


def gives_probabilities(trees: TreeSignature, parameters: TreeParameters) -> bool:
    return parameters.wants_probabilities and (trees.is_classifier or trees.classes > 1)


def gives_label(trees: TreeSignature, parameters: TreeParameters) -> bool:
    if gives_probabilities(trees, parameters):
        return False
    default = trees.is_classifier and trees.targets == 1
    return default if parameters.wants_class is None else parameters.wants_class


def tensors_of(trees: TreeSignature, parameters: TreeParameters) -> Signature:
    """Inputs and outputs as a config writes them, the batch axis first."""
    fp32 = BY_NAME["FP32"]
    return Signature(
        (TensorSignature(INPUT, fp32, (-1, trees.features)),),
        (TensorSignature(OUTPUT, fp32, (-1, output_width(trees, parameters))),),
    )


def _flag(values: Mapping[str, str], name: str) -> bool | None:
    text = values.get(name)
    if text is None:
        return None
    value = _WORDS.get(text.strip().casefold())
    if value is None:
        raise _bad(name, text, "true or false")
    return value


def _threshold(values: Mapping[str, str]) -> float:
    text = values.get("threshold", "0.5")
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if math.isnan(value):
        raise _bad("threshold", text, "a number, 0.5 for example")
    return value


def _thread_count(values: Mapping[str, str]) -> int | None:
    text = values.get("nthread")
    if text is None:
        return None
    digits = text.strip()
    if not digits.removeprefix("-").isdecimal() or int(digits) < -1:
        raise _bad("nthread", text, "a whole number of threads, 0 for every core")
    return max(0, int(digits))


def _bad(name: str, text: str, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"parameter '{name}' is '{text}': it must be {wanted}")
