"""What an ONNX file says about its inputs and outputs, read without any ML runtime.

Only the outline of the file is read: weights are skipped by their length. Any thread; blocks on
the disk. Message and field numbers are those of onnx.proto.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from pathlib import Path

from serving.config.torch_call_spec import CallSpec
from serving.config.wire import Buffer, WireError, fields
from serving.datatypes import BY_NAME, DataType
from serving.errors import InvalidArgumentError

_ELEMENT_TYPES = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "BYTES",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
    16: "BF16",
    # The protocol has no FP8: its bits travel.
    **dict.fromkeys((17, 18, 19, 20), "UINT8"),
}
_OTHER_KINDS = {4: "sequence", 5: "map", 8: "sparse tensor", 9: "optional"}
_LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class TensorSignature:
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    """Full shape, -1 where the file gives no fixed size. Empty for a scalar."""
    is_rank_known: bool = True

    @property
    def can_batch(self) -> bool:
        return bool(self.shape) and self.shape[0] == -1


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs as the model file declares them."""

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    optional_inputs: tuple[TensorSignature, ...] = ()
    """Inputs that have a default value in the file."""
    unsupported: dict[str, str] = field(default_factory=dict)
    """Tensor -> type that no request can carry, e.g. sequence."""
    external_files: tuple[str, ...] = ()
    """Weights beside the model file."""
    call_spec: CallSpec | None = None
    """Of a PT2 archive: names in a config follow one of its conventions."""

    @property
    def can_batch(self) -> bool:
        if self.call_spec is not None and self.call_spec.nested:
            return False
        tensors = (*self.inputs, *self.outputs)
        return bool(tensors) and all(item.can_batch for item in tensors)


@dataclass(slots=True)
class _Graph:
    inputs: list[tuple[int, int]]
    outputs: list[tuple[int, int]]
    initializers: set[str]
    external: dict[str, None]


def read_onnx_signature(path: Path) -> Signature:
    """Read the file, or the file model.onnx inside the directory `path`.

    Raises: InvalidArgumentError naming the file and why it is not an ONNX model.
    """
    file = path / "model.onnx" if path.is_dir() else path
    try:
        with file.open("rb") as handle:
            size = handle.seek(0, 2)
            if size == 0:
                raise InvalidArgumentError(f"'{file}' is empty: it is not an ONNX model")
            with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data[: len(_LFS_POINTER)] == _LFS_POINTER:
                    raise InvalidArgumentError(
                        f"'{file}' is a Git LFS pointer, not the model: run git lfs pull"
                    )
                return _signature(data)
    except OSError as error:
        raise InvalidArgumentError(f"'{file}' cannot be read: {error.strerror}") from error
    except (WireError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"'{file}' is not an ONNX model: {error}") from error


def _signature(data: mmap.mmap) -> Signature:
    # The whole file is walked: a graph that is there says nothing about a truncated end.
    parts = {item.number: item for item in fields(data, 0, len(data))}
    outline = parts.get(7)
    if outline is None or not outline.has_length:
        raise WireError("it holds no graph")
    if 8 not in parts:
        raise WireError("it names no operator set: truncated?")
    graph = _graph(data, outline.value, outline.end)
    unsupported: dict[str, str] = {}
    inputs = _tensors(data, graph.inputs, unsupported)
    outputs = _tensors(data, graph.outputs, unsupported)
    if not inputs and not outputs and not unsupported:
        raise WireError("its graph has neither inputs nor outputs")
    return Signature(
        tuple(item for item in inputs if item.name not in graph.initializers),
        tuple(outputs),
        tuple(item for item in inputs if item.name in graph.initializers),
        unsupported,
        tuple(graph.external),
    )


def _graph(data: mmap.mmap, start: int, end: int) -> _Graph:
    graph = _Graph([], [], set(), {})
    for item in fields(data, start, end):
        if not item.has_length:
            continue
        span = (item.value, item.end)
        if item.number == 11:
            graph.inputs.append(span)
        elif item.number == 12:
            graph.outputs.append(span)
        elif item.number == 5:
            _initializer(data, span, graph)
        elif item.number == 15:
            for part in fields(data, *span):
                if part.number == 1 and part.has_length:
                    _initializer(data, (part.value, part.end), graph)
    return graph


def _initializer(data: mmap.mmap, span: tuple[int, int], graph: _Graph) -> None:
    for item in fields(data, *span):
        if item.number == 8 and item.has_length:
            graph.initializers.add(_text(data, item.value, item.end))
        elif item.number == 13 and item.has_length:
            pair = {
                part.number: _text(data, part.value, part.end)
                for part in fields(data, item.value, item.end)
                if part.has_length
            }
            if pair.get(1) == "location":
                graph.external[pair.get(2, "")] = None


def _tensors(
    data: mmap.mmap, spans: list[tuple[int, int]], unsupported: dict[str, str]
) -> list[TensorSignature]:
    tensors = []
    for span in spans:
        name, type_span = "", None
        for item in fields(data, *span):
            if item.number == 1 and item.has_length:
                name = _text(data, item.value, item.end)
            elif item.number == 2 and item.has_length:
                type_span = (item.value, item.end)
        tensor = _tensor(data, name, type_span, unsupported)
        if tensor is not None:
            tensors.append(tensor)
    return tensors


def _tensor(
    data: mmap.mmap, name: str, span: tuple[int, int] | None, unsupported: dict[str, str]
) -> TensorSignature | None:
    kind = "a value without a type"
    for item in fields(data, *span) if span else ():
        if item.number == 1 and item.has_length:
            return _tensor_type(data, name, (item.value, item.end), unsupported)
        kind = _OTHER_KINDS.get(item.number, kind)
    unsupported[name] = kind
    return None


def _tensor_type(
    data: mmap.mmap, name: str, span: tuple[int, int], unsupported: dict[str, str]
) -> TensorSignature | None:
    element, shape = 0, None
    for item in fields(data, *span):
        if item.number == 1:
            element = item.value
        elif item.number == 2 and (item.has_length or item.value == item.end):
            shape = tuple(
                _dim(data, part.value, part.end)
                for part in fields(data, item.value, item.end)
                if part.number == 1
            )
    type_name = _ELEMENT_TYPES.get(element)
    if type_name is None:
        unsupported[name] = f"element type {element}"
        return None
    return TensorSignature(name, BY_NAME[type_name], shape or (), shape is not None)


def _dim(data: Buffer, start: int, end: int) -> int:
    for item in fields(data, start, end):
        if item.number == 1 and not item.has_length:
            return item.value if 0 < item.value < 2**63 else -1
    return -1


def _text(data: mmap.mmap, start: int, end: int) -> str:
    return data[start:end].decode("utf-8")
