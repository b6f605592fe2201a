"""Answers as bytes, for stores outside of the process."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from serving.cache import codec
from serving.cache.base import CachedAnswer
from tests.serving.cache.answers import answer, output


def test_an_answer_comes_back_as_it_was():
    kept = CachedAnswer(
        (
            output("F", "FP32", np.arange(6, dtype=np.float32).reshape(2, 3)),
            output("S", "BYTES", np.array([[b"a"], [b""], ["\xe9".encode()]], np.object_)),
            output("H", "BF16", np.ones((2, 1), ml_dtypes.bfloat16)),
            output("E", "INT64", np.empty((0, 4), np.int64)),
            output("N", "FP64", np.float64(2.5).reshape(())),
        ),
        {"text": "t", "yes": True, "count": 3, "share": 0.5},
    )

    back = codec.decode(codec.encode(kept))

    assert back.parameters == kept.parameters
    assert [type(value) for value in back.parameters.values()] == [str, bool, int, float]
    for one, other in zip(kept.outputs, back.outputs, strict=True):
        assert (one.name, one.datatype, one.shape) == (other.name, other.datatype, other.shape)
        assert one.array.dtype == other.array.dtype
        assert one.array.tolist() == other.array.tolist()


def test_an_answer_without_outputs_comes_back():
    assert codec.decode(codec.encode(CachedAnswer(()))) == CachedAnswer(())


@pytest.mark.parametrize("spoil", [0, 3, 7, 12, -1])
def test_anything_else_is_refused(spoil):
    data = codec.encode(answer())
    cut = data[:spoil] if spoil >= 0 else b"junk" + data

    with pytest.raises(ValueError, match="no answer of the response cache|buffer size|reshape"):
        codec.decode(cut)
