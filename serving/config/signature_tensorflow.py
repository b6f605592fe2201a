"""What a TensorFlow SavedModel says about its inputs and outputs. Any thread; blocks on the disk.

Reads the signatures out of saved_model.pb, by the message and field numbers of TensorFlow's
saved_model.proto and meta_graph.proto; the graph itself is skipped.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from serving.config.signature import Signature, TensorSignature
from serving.config.wire import WireError, fields
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError

DEFAULT_SIGNATURE = "serving_default"
_META_GRAPHS, _SIGNATURE_DEF = 2, 5
_ELEMENT_TYPES = {
    1: "FP32",
    2: "FP64",
    3: "INT32",
    4: "UINT8",
    5: "INT16",
    6: "INT8",
    7: "BYTES",
    9: "INT64",
    10: "BOOL",
    14: "BF16",
    17: "UINT16",
    19: "FP16",
    22: "UINT32",
    23: "UINT64",
}
_Span = tuple[int, int]


def read_savedmodel_signature(path: Path, wanted: str = DEFAULT_SIGNATURE) -> Signature:
    """Read the directory `path`.

    Raises: InvalidArgumentError naming the file and why it is no SavedModel with that signature.
    """
    file = path / "saved_model.pb"
    try:
        with (
            file.open("rb") as handle,
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            signatures = _signatures(data)
            span = signatures.get(wanted)
            if span is None:
                names = ", ".join(sorted(signatures)) or "none"
                raise InvalidArgumentError(
                    f"'{file}' has no signature '{wanted}'; its signatures: {names}"
                )
            return _signature(data, span)
    except OSError as error:
        raise InvalidArgumentError(f"'{file}' cannot be read: {error.strerror}") from error
    except (WireError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"'{file}' is not a SavedModel: {error}") from error
    except ValueError as error:
        raise InvalidArgumentError(f"'{file}' is empty: it is not a SavedModel") from error


def _signatures(data: mmap.mmap) -> dict[str, _Span]:
    found: dict[str, _Span] = {}
    graphs = [
        (item.value, item.end)
        for item in fields(data, 0, len(data))
        if item.number == _META_GRAPHS and item.has_length
    ]
    if not graphs:
        raise WireError("it holds no graph")
    for span in graphs:
        found |= dict(_entries(data, span, _SIGNATURE_DEF))
    return found


def _entries(data: mmap.mmap, span: _Span, number: int) -> Iterator[tuple[str, _Span]]:
    """The entries of a map field: key and place of the value."""
    for item in fields(data, *span):
        if item.number != number or not item.has_length:
            continue
        parts = {
            part.number: (part.value, part.end)
            for part in fields(data, item.value, item.end)
            if part.has_length
        }
        if 1 in parts and 2 in parts:
            start, end = parts[1]
            yield data[start:end].decode(), parts[2]


def _signature(data: mmap.mmap, span: _Span) -> Signature:
    unsupported: dict[str, str] = {}
    inputs = _tensors(data, _entries(data, span, 1), unsupported)
    outputs = _tensors(data, _entries(data, span, 2), unsupported)
    return Signature(tuple(inputs), tuple(outputs), unsupported=unsupported)


def _tensors(
    data: mmap.mmap, entries: Iterator[tuple[str, _Span]], unsupported: dict[str, str]
) -> list[TensorSignature]:
    tensors = []
    for name, span in sorted(entries):
        number, shape = 0, None
        for item in fields(data, *span):
            if item.number == 2 and not item.has_length:
                number = item.value
            elif item.number == 3 and item.has_length:
                shape = _shape(data, (item.value, item.end))
        datatype = _ELEMENT_TYPES.get(number)
        if datatype is None:
            unsupported[name] = f"element type {number}"
        else:
            known = shape is not None
            tensors.append(TensorSignature(name, BY_NAME[datatype], shape or (), known))
    return tensors


def _shape(data: mmap.mmap, span: _Span) -> tuple[int, ...] | None:
    sizes = []
    for item in fields(data, *span):
        if item.number == 3 and item.value:
            return None
        if item.number == 2 and item.end:
            size = next((p.value for p in fields(data, item.value, item.end) if p.number == 1), 0)
            sizes.append(size if 0 < size < 2**63 else -1)
    return tuple(sizes)
