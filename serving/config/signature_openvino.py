"""What an OpenVINO IR file (model.xml) says about its inputs and outputs.

Reads the outline only: the weights in the .bin file are not touched, and a document type with
entities is refused. Any thread; blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from serving.config.signature import Signature, TensorSignature
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError

_ELEMENT_TYPES = {
    "boolean": "BOOL",
    "bool": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "bf16": "BF16",
    "f32": "FP32",
    "f64": "FP64",
    "string": "BYTES",
    "fp16": "FP16",
    "fp32": "FP32",
    "fp64": "FP64",
}


@dataclass(slots=True)
class _Port:
    precision: str = ""
    names: str = ""
    dims: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Layer:
    name: str
    kind: str
    element_type: str = ""
    shape: str | None = None
    ports: dict[str, _Port] = field(default_factory=dict)


@dataclass(slots=True)
class _Net:
    layers: dict[str, _Layer] = field(default_factory=dict)
    edges: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Layer that reads -> layer and port that it reads from (Result layers read one)."""


class _Reader:
    """Collects layers and edges of the outermost network while expat walks the file."""

    def __init__(self) -> None:
        self.net = _Net()
        self._path: list[str] = []
        self._layer: _Layer | None = None
        self._port: _Port | None = None
        self._text: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append
        self._parser.StartDoctypeDeclHandler = self._refuse

    def read(self, path: Path) -> _Net:
        with path.open("rb") as file:
            self._parser.ParseFile(file)
        return self.net

    def _refuse(self, *_: object) -> None:
        raise InvalidArgumentError("it has a document type, which no OpenVINO model has")

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._path.append(tag)
        self._text.clear()
        if self._path == ["net", "layers", "layer"]:
            layer = _Layer(attributes.get("name", ""), attributes.get("type", ""))
            self.net.layers[attributes.get("id", "")] = self._layer = layer
        elif self._path == ["net", "layers", "layer", "data"] and self._layer is not None:
            self._layer.element_type = attributes.get("element_type", "")
            self._layer.shape = attributes.get("shape")
        elif self._path[:3] == ["net", "layers", "layer"] and tag == "port" and self._layer:
            self._port = _Port(attributes.get("precision", ""), attributes.get("names", ""))
            if len(self._path) == 5:
                self._layer.ports[attributes.get("id", "")] = self._port
        elif self._path == ["net", "edges", "edge"]:
            source = (attributes.get("from-layer", ""), attributes.get("from-port", ""))
            self.net.edges[attributes.get("to-layer", "")] = source

    def _end(self, tag: str) -> None:
        if tag == "dim" and self._port is not None:
            self._port.dims.append(_size("".join(self._text)))
        elif tag == "port":
            self._port = None
        self._path.pop()


def read_openvino_signature(path: Path) -> Signature:
    """Raises: InvalidArgumentError naming the file and why it is not an OpenVINO model."""
    try:
        net = _Reader().read(path)
    except OSError as error:
        raise InvalidArgumentError(f"'{path}' cannot be read: {error.strerror}") from error
    except (expat.ExpatError, InvalidArgumentError, ValueError) as error:
        words = error.message if isinstance(error, InvalidArgumentError) else str(error)
        raise InvalidArgumentError(f"'{path}' is not an OpenVINO model: {words}") from error
    if not net.layers:
        raise InvalidArgumentError(f"'{path}' is not an OpenVINO model: it holds no layers")
    unsupported: dict[str, str] = {}
    inputs = _tensors(_inputs(net), unsupported)
    outputs = _tensors(_outputs(net), unsupported)
    return Signature(tuple(inputs), tuple(outputs), unsupported=unsupported)


def _inputs(net: _Net) -> Iterable[tuple[str, str, list[int] | None]]:
    for layer in net.layers.values():
        if layer.kind == "Parameter":
            port = next(iter(layer.ports.values()), _Port())
            shape = layer.shape
            dims: list[int] | None = port.dims
            if shape is not None:
                dims = None if "..." in shape else [_size(part) for part in _parts(shape)]
            yield _name(port, layer), layer.element_type or port.precision, dims


def _outputs(net: _Net) -> Iterable[tuple[str, str, list[int] | None]]:
    for key, layer in net.layers.items():
        if layer.kind != "Result":
            continue
        source, port_id = net.edges.get(key, ("", ""))
        producer = net.layers.get(source, layer)
        port = producer.ports.get(port_id, _Port())
        own = next(iter(layer.ports.values()), port)
        yield _name(port, producer), port.precision or own.precision, port.dims or own.dims


def _name(port: _Port, layer: _Layer) -> str:
    return port.names.split(",")[0] or layer.name


def _parts(shape: str) -> list[str]:
    return [part for part in shape.replace(" ", "").split(",") if part]


def _size(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdecimal() and int(text) > 0 else -1


def _tensors(
    found: Iterable[tuple[str, str, list[int] | None]], unsupported: dict[str, str]
) -> list[TensorSignature]:
    tensors = []
    for name, kind, dims in found:
        datatype = _ELEMENT_TYPES.get(kind.casefold())
        if datatype is None:
            unsupported[name] = f"element type {kind or 'unknown'}"
        else:
            shape = tuple(dims or ())
            tensors.append(TensorSignature(name, BY_NAME[datatype], shape, dims is not None))
    return tensors
