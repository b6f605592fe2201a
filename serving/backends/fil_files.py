"""Reads tree models with Treelite. The only file that imports treelite, when a model needs it.

Treelite trusts files: a damaged one may crash the process, or end in no answer, when it is read or
when it predicts. So a file is read in a child process first (`fil_trial`), and `check_trees` looks
whether every tree is one. Load threads enter, and the main thread of that child.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serving.backends.runtimes import require
from serving.config.signature_trees import TreeSignature, read_tree_signature
from serving.errors import InvalidArgumentError, ModelLoadError

_CLASSIFIERS = (0, 2)
"""Task types of Treelite: binary classification, multi-class classification."""
_NOISE = re.compile(r"^\[[\d:]+\] \S+:\d+: (?:Check failed: .*?: (?=\S))?")
"""What Treelite puts before its words: time, place in its sources, condition."""
_JSON_STARTS = (b'{"', b"{ ", b"{\n", b"{\r", b"{\t")


def treelite() -> Any:
    """Raises: UnavailableError with the command that installs it."""
    return require("treelite", backend="fil", install="pip install 'conch[fil]'")


def read_model(path: Path, kind: str, *, allows_unknown_fields: bool) -> Any:
    """Raises: ModelLoadError naming the file and why it is no such model."""
    _check_kind(path, kind)
    library = treelite()
    frontend = library.frontend
    readers: Mapping[str, Callable[[], Any]] = {
        "xgboost": lambda: frontend.load_xgboost_model_legacy_binary(path),
        "xgboost_json": lambda: frontend.load_xgboost_model(
            path, format_choice="json", allow_unknown_field=allows_unknown_fields
        ),
        "xgboost_ubj": lambda: frontend.load_xgboost_model(
            path, format_choice="ubjson", allow_unknown_field=allows_unknown_fields
        ),
        "lightgbm": lambda: frontend.load_lightgbm_model(path),
        "treelite_checkpoint": lambda: library.Model.deserialize(path),
    }
    try:
        return readers[kind]()
    except Exception as error:
        if kind == "xgboost_json":
            _check_outline(path, kind)  # its words say more than a place in the text
        raise not_such(path, kind, _cause(error)) from error


def not_such(path: Path, kind: str, cause: str) -> ModelLoadError:
    return ModelLoadError(f"{path.parent.name}/{path.name} is no model of type {kind}: {cause}")


def signature_of(model: Any) -> TreeSignature:
    header = model.get_header_accessor()
    task = int(header.get_field("task_type")[0])
    return TreeSignature(
        int(model.num_feature),
        max(int(count) for count in header.get_field("num_class")),
        targets=int(header.get_field("num_target")[0]),
        is_classifier=task in _CLASSIFIERS,
    )


def check_trees(model: Any) -> None:
    """Raises: ValueError where following the trees would lead astray."""
    header = model.get_header_accessor()
    targets = int(header.get_field("num_target")[0])
    classes = header.get_field("num_class")
    widths = header.get_field("leaf_vector_shape")
    count = int(model.num_tree)
    if not (targets > 0 and classes.shape == (targets,) and (classes > 0).all()):
        raise ValueError("it counts its classes wrongly")
    if not (widths.shape == (2,) and (widths > 0).all()):
        raise ValueError("its leaves have no width")
    if header.get_field("base_scores").size != targets * int(classes.max()):
        raise ValueError("its base scores are not one for each class")
    for name, limit in (("target_id", targets), ("class_id", int(classes.max()))):
        places = header.get_field(name)
        if places.shape != (count,) or (places < -1).any() or (places >= limit).any():
            raise ValueError("its trees add to classes that it has not")
    for index in range(count):
        _check_tree(model.get_tree_accessor(index), int(model.num_feature), int(np.prod(widths)))


def _check_tree(tree: Any, features: int, width: int) -> None:
    left, right = tree.get_field("cleft"), tree.get_field("cright")
    inner = left != -1
    children = np.concatenate([left[inner], right[inner]])
    nodes = len(left)
    if not nodes or len(right) != nodes or int(tree.get_field("num_nodes")[0]) != nodes:
        raise ValueError("a tree has no nodes")
    if (children < 1).any() or (children >= nodes).any():
        raise ValueError("a tree has a branch that leads nowhere")
    # Nobody has two parents and the root has none: no way leads back.
    if len(np.unique(children)) != len(children):
        raise ValueError("a tree has branches that grow together")
    splits = tree.get_field("split_index")
    if len(splits) != nodes or (splits[inner] < 0).any() or (splits[inner] >= features).any():
        raise ValueError("a tree asks for a feature that it has not")
    for name, length in (("leaf_vector", width if width > 1 else 0), ("category_list", 0)):
        begins, ends = tree.get_field(f"{name}_begin"), tree.get_field(f"{name}_end")
        if not len(begins) == len(ends) == nodes or (begins > ends).any():
            raise ValueError("a tree has leaves or categories out of order")
        if (ends > len(tree.get_field(name))).any():
            raise ValueError("a tree has leaves or categories that it has not")
        if length and (ends[~inner] - begins[~inner] != length).any():
            raise ValueError("a tree has a leaf of another width")
    whole = ("node_type", "default_left", "leaf_value", "threshold", "cmp")
    for name in (*whole, "category_list_right_child"):
        if len(tree.get_field(name)) != nodes:
            raise ValueError("a tree has nodes that are not whole")


def _check_kind(path: Path, kind: str) -> None:
    """Says what Treelite leaves unsaid, or prints past the log."""
    with path.open("rb") as file:
        start = file.read(2)
    if kind.startswith("xgboost") and start.startswith(b"{"):
        found = "xgboost_json" if start in _JSON_STARTS else "xgboost_ubj"
        if found != kind:
            raise not_such(path, kind, f"it is one of {found}: set parameter model_type to that")
    if kind == "xgboost_ubj":
        _check_outline(path, kind)


def _check_outline(path: Path, kind: str) -> None:
    try:
        read_tree_signature(path, kind)
    except InvalidArgumentError as error:
        raise not_such(path, kind, error.message.rpartition(" model: ")[2]) from error


def _cause(error: Exception) -> str:
    """The first line of the library's text, without places in its sources."""
    line = _NOISE.sub("", str(error).partition("\n")[0]).strip()
    if not line or line.startswith("basic_string"):
        return "the file is damaged, or of another type"
    return line[:300]
