"""The classification extension: the k best of an output as `value:index[:label]` strings.

Pure; any thread. Source: spec HTTP-040.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.datatypes import BY_NAME, element_count
from serving.errors import InvalidArgumentError
from serving.response import OutputTensor

_CLASSIFIABLE = frozenset(
    {"UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64"}
)


def classify(
    output: OutputTensor, count: int, labels: Sequence[str], *, has_batch_axis: bool
) -> OutputTensor:
    """Replace the tensor by its `count` best classes, highest first, ties in index order.

    The shape becomes `[batch, k]`, or `[k]` without a batch axis; k is clipped to what is there.
    """
    if output.datatype.name not in _CLASSIFIABLE:
        raise InvalidArgumentError(
            f"output '{output.name}' has datatype {output.datatype.name}, which cannot be "
            "classified; ask for the tensor itself"
        )
    batch = output.shape[0] if has_batch_axis and output.shape else 1
    width = element_count(output.shape[1:] if has_batch_axis else output.shape)
    rows = output.array.reshape(batch, width)
    k = min(count, rows.shape[1])
    values = np.empty((batch, k), dtype=np.object_)
    for index, row in enumerate(rows):
        values[index, :] = [_entry(row, int(best), labels) for best in _best(row, k)]
    shape = (batch, k) if has_batch_axis else (k,)
    return OutputTensor(output.name, BY_NAME["BYTES"], shape, values.reshape(shape))


def _best(row: NDArray[np.generic], k: int) -> NDArray[np.intp]:
    # Reversed twice, so that a stable ascending sort yields descending values, ties by index.
    order = np.argsort(row[::-1], kind="stable")[::-1]
    return len(row) - 1 - order[:k]


def _entry(row: NDArray[np.generic], index: int, labels: Sequence[str]) -> bytes:
    value = row[index].item()
    text = f"{value:.6f}" if isinstance(value, float) else str(value)
    label = labels[index] if index < len(labels) else ""
    return (f"{text}:{index}:{label}" if label else f"{text}:{index}").encode()
