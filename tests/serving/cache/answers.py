"""Answers to put into caches."""

from __future__ import annotations

import numpy as np

from serving.cache.base import CachedAnswer
from serving.datatypes import BY_NAME
from serving.response import OutputTensor


def answer(size: int = 4, fill: int = 1) -> CachedAnswer:
    """One UINT8 output of `size` bytes."""
    array = np.full(size, fill, np.uint8)
    return CachedAnswer((OutputTensor("OUT", BY_NAME["UINT8"], array.shape, array),))


def output(name: str, datatype: str, array: np.ndarray) -> OutputTensor:
    return OutputTensor(name, BY_NAME[datatype], array.shape, array)
