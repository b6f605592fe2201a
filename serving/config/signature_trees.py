"""What files of tree models say about features and classes. Any thread; blocks on the disk.

The formats: XGBoost JSON and UBJSON, LightGBM text, Treelite checkpoints of version 4. Trees
themselves are skipped.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.errors import InvalidArgumentError

FILENAMES = {
    "xgboost": "xgboost.model",
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}
"""model_type of the FIL backend -> file that it looks for."""
MAX_BYTES = 256 * 1024 * 1024
_HEADER_BYTES = 256 * 1024
_NUMBERS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}
_MAX_DEPTH = 64
_LIGHTGBM_CLASSIFIERS = frozenset({"binary", "multiclass", "multiclassova", "cross_entropy"})
_TREELITE_CLASSIFIERS = (0, 2)
"""Task types of Treelite's header: binary classification, multi-class classification."""
_MAX_TARGETS = 1024


@dataclass(frozen=True, slots=True)
class TreeSignature:
    features: int
    classes: int
    """1 for regression and for binary classification with one score."""
    objective: str = ""
    targets: int = 1
    """More than 1 for a model that predicts several values of each row."""
    is_classifier: bool = False


def read_tree_signature(path: Path, model_type: str) -> TreeSignature | None:
    """None for a kind of file that is not read.

    Raises: InvalidArgumentError naming the file and why it is not such a model.
    """
    readers = {
        "xgboost_json": _xgboost_json,
        "xgboost_ubj": _xgboost_ubj,
        "lightgbm": _lightgbm,
        "treelite_checkpoint": _treelite,
    }
    reader = readers.get(model_type)
    if reader is None:
        return None
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return reader(path)
    except OSError as error:
        raise InvalidArgumentError(f"'{path}' cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
        cause = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidArgumentError(f"'{path}' is not a {model_type} model: {cause}") from error


def _xgboost_json(path: Path) -> TreeSignature:
    return _xgboost(json.loads(path.read_bytes()))


def _xgboost_ubj(path: Path) -> TreeSignature:
    return _xgboost(_Ubj(path.read_bytes()).read())


def _xgboost(model: Any) -> TreeSignature:
    learner = model["learner"]
    if learner.get("gradient_booster", {}).get("name") == "gblinear":
        raise ValueError("its booster is gblinear, a linear model without trees")
    parameters = learner["learner_model_param"]
    objective = learner.get("objective", {}).get("name", "")
    classes = int(parameters.get("num_class", "0"))
    targets = int(parameters.get("num_target", "1"))
    return TreeSignature(
        int(parameters["num_feature"]),
        max(1, classes),
        objective,
        max(1, targets),
        objective.startswith(("binary:", "multi:")),
    )


def _lightgbm(path: Path) -> TreeSignature:
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES).decode("utf-8", "replace").partition("\nTree=")[0]
    if not header.startswith("tree"):
        raise ValueError("it does not start with 'tree'")
    values = dict(line.partition("=")[::2] for line in header.splitlines() if "=" in line)
    objective = values.get("objective", "").partition(" ")[0]
    return TreeSignature(
        int(values["max_feature_idx"]) + 1,
        max(1, int(values["num_class"])),
        objective,
        is_classifier=objective in _LIGHTGBM_CLASSIFIERS,
    )


def _treelite(path: Path) -> TreeSignature | None:
    """The head of a checkpoint: version, two types, counts, task, classes of each target."""
    head = struct.Struct("<3i2BQi2Bi")
    with path.open("rb") as file:
        major, _, _, _, _, _, features, task, _, targets = head.unpack(file.read(head.size))
        if major == 3:
            return None  # of an older layout, which Treelite still reads
        if major != 4 or features < 1 or not 1 <= targets <= _MAX_TARGETS:
            raise ValueError("it does not start like one of version 4")
        count = struct.unpack("<Q", file.read(8))[0]
        if count != targets:
            raise ValueError(f"it names {targets} targets and the classes of {count}")
        classes = struct.unpack(f"<{targets}i", file.read(4 * targets))
    return TreeSignature(
        features, max(1, *classes), targets=targets, is_classifier=task in _TREELITE_CLASSIFIERS
    )


class _Ubj:
    """A reader of UBJSON, with the typed arrays that XGBoost writes skipped."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self) -> Any:
        return self._value(self._mark(), 0)

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"truncated at byte {self._at}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _mark(self) -> str:
        mark = "N"
        while mark == "N":
            mark = self._take(1).decode("latin-1")
        return mark

    def _number(self, mark: str) -> Any:
        form = _NUMBERS.get(mark)
        if form is None:
            raise ValueError(f"no number at byte {self._at}")
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _text(self) -> str:
        return self._take(int(self._number(self._mark()))).decode()

    def _value(self, mark: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if mark in _NUMBERS:
            return self._number(mark)
        if mark in "ZTF":
            return {"Z": None, "T": True, "F": False}[mark]
        if mark in "SH":
            return self._text()
        if mark == "C":
            return self._take(1).decode("latin-1")
        if mark == "[":
            return self._array(depth + 1)
        if mark == "{":
            return self._object(depth + 1)
        raise ValueError(f"unknown mark {mark!r} at byte {self._at}")

    def _sized(self) -> tuple[str, int | None]:
        """Type and count of an optimised container; ("", None) for an open one."""
        kind, count = "", None
        if self._peek() == b"$":
            self._take(1)
            kind = self._take(1).decode("latin-1")
        if self._peek() == b"#":
            self._take(1)
            count = int(self._number(self._mark()))
            if not 0 <= count <= len(self._data):
                raise ValueError(f"a container at byte {self._at} claims {count} items")
        return kind, count

    def _peek(self) -> bytes:
        return self._data[self._at : self._at + 1]

    def _array(self, depth: int) -> list[Any]:
        kind, count = self._sized()
        if kind in _NUMBERS and count is not None:
            self._take(struct.calcsize(_NUMBERS[kind]) * count)
            return []
        items: list[Any] = []
        while count is None or len(items) < count:
            mark = kind or self._mark()
            if mark == "]" and count is None:
                break
            items.append(self._value(mark, depth))
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        kind, count = self._sized()
        items: dict[str, Any] = {}
        read = 0
        while count is None or read < count:
            if count is None and self._peek() == b"}":
                self._take(1)
                break
            name = self._text()
            items[name] = self._value(kind or self._mark(), depth)
            read += 1
        return items
