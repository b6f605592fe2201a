"""What an answer depends on, and what it does not (SCH-121)."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from serving.cache.key import generation_of_files, request_key
from serving.datatypes import BY_NAME
from serving.request import InferenceRequest, RequestedOutput
from tests.serving.loading import request_of, tensor

GENERATION = b"g" * 16
ALL = ("A", "B")


def key(request: InferenceRequest, salt: bytes = b"") -> bytes:
    return request_key(GENERATION, request, ALL, salt)


def base(**fields: object) -> InferenceRequest:
    return request_of({"X": np.arange(4, dtype=np.int32), "Y": np.ones(2, np.int32)}, **fields)


def changed(what: str) -> InferenceRequest:
    request = base()
    x = request.inputs["X"].array
    if what == "bytes":
        request.inputs["X"] = tensor("X", x + 1)
    elif what == "shape":
        request.inputs["X"] = tensor("X", x.reshape(2, 2))
    elif what == "type":
        request.inputs["X"] = tensor("X", x.view(np.float32))
    elif what == "name":
        request.inputs["Z"] = tensor("Z", x)
        del request.inputs["X"]
    elif what == "one more input":
        request.inputs["Z"] = tensor("Z", np.empty(0, np.int32))
    elif what == "bytes moved from one input to the other":
        request.inputs["X"] = tensor("X", np.arange(3, dtype=np.int32))
        request.inputs["Y"] = tensor("Y", np.array([3, 1, 1], np.int32))
    elif what == "outputs":
        request.requested_outputs = [RequestedOutput("A")]
    elif what == "a parameter":
        request.parameters["p"] = 1
    return request


@pytest.mark.parametrize(
    "what",
    ["bytes", "shape", "type", "name", "one more input", "outputs", "a parameter"]
    + ["bytes moved from one input to the other"],
)
def test_a_request_that_may_have_another_answer_has_another_key(what):
    """SCH-121. The key of real Triton knows names and bytes only: other shape, wrong answer."""
    assert key(changed(what)) != key(base())


def test_parameters_are_told_apart_by_type():
    keys = {key(base(parameters={"p": value})) for value in (1, 1.0, True, "1")}

    assert len(keys) == 4


def test_requests_with_the_same_answer_have_the_same_key():
    """SCH-121: names are sorted; who asks, how urgently and for how long does not matter."""
    other = base(id="another", priority=2, timeout_us=5)
    other.inputs = dict(reversed(list(other.inputs.items())))
    other.requested_outputs = [RequestedOutput("B", classification_count=3), RequestedOutput("A")]

    assert key(other) == key(base())


def test_an_array_with_gaps_has_the_key_of_its_content():
    spread = np.zeros((4, 2), np.int32)
    spread[:, 0] = np.arange(4)
    request = base()
    request.inputs["X"] = tensor("X", spread[:, 0])

    assert key(request) == key(base())


@pytest.mark.parametrize(
    ("datatype", "array"),
    [
        ("BF16", np.ones((2, 2), ml_dtypes.bfloat16)),
        ("FP16", np.ones((), np.float16)),
        ("BOOL", np.array([True, False])),
        ("FP32", np.zeros((0, 3), np.float32)),
        ("BYTES", np.array([b"a", b"bc"], np.object_)),
        ("INT64", np.arange(100_000)),
    ],
)
def test_every_type_has_a_key(datatype, array):
    request = InferenceRequest("m", inputs={"X": tensor("X", array, BY_NAME[datatype])})

    assert key(request).startswith(GENERATION)
    assert len(key(request)) == 48


def test_strings_are_told_apart_by_where_they_end():
    first, second = (
        InferenceRequest(
            "m", inputs={"X": tensor("X", np.array(text, np.object_), BY_NAME["BYTES"])}
        )
        for text in ([b"ab", b"c"], [b"a", b"bc"])
    )

    assert key(first) != key(second)


def test_the_salt_counts():
    assert key(base(), b"1") != key(base(), b"2")


def test_equal_files_and_config_are_one_generation(tmp_path: Path):
    """SCH-121: what a shared cache holds is found again after a restart, but not after a change."""

    def write(root: Path, weights: bytes = b"w") -> Path:
        for version in ("1", "2"):
            (root / version).mkdir(parents=True)
            (root / version / "model.bin").write_bytes(weights)
        (root / "labels.txt").write_text("a\n")
        return root

    def generation(directory: Path, config: bytes = b"c", version: int = 1) -> bytes:
        return generation_of_files("m", version, config, directory)

    first = generation(write(tmp_path / "one"))
    assert first == generation(write(tmp_path / "two"))
    assert len(first) == 16

    (tmp_path / "two" / "2" / "model.bin").write_bytes(b"other")
    (tmp_path / "two" / "1" / "__pycache__").mkdir()
    (tmp_path / "two" / "1" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert first == generation(tmp_path / "two")

    others = [
        generation(write(tmp_path / "three", b"v")),
        generation(tmp_path / "one", b"d"),
        generation(tmp_path / "one", version=2),
    ]
    (tmp_path / "one" / "labels.txt").write_text("b\n")
    others.append(generation(tmp_path / "one"))
    assert len({first, *others}) == 5


def test_a_link_that_leads_back_does_not_go_round_for_ever(tmp_path: Path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "again").symlink_to(tmp_path)

    assert generation_of_files("m", 1, b"", tmp_path)
