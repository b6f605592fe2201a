"""What a request to a model must look like: shape, datatype, an example, and runnable snippets.

Pure functions; any thread. Works on a completed config.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from serving.config.protobuf import pb
from serving.datatypes import BY_CONFIG_NUMBER, DataType, element_count

_BINARY_ONLY = ("FP16", "BF16")
MAX_JSON_ELEMENTS = 64
"""Examples with more elements are sent in binary form."""


@dataclass(frozen=True, slots=True)
class InputRequirement:
    name: str
    datatype: str
    """Protocol name, e.g. FP32 or BYTES."""
    shape: tuple[int, ...]
    """As requests must give it, the batch axis included; -1 is any size."""
    is_optional: bool
    origin: str
    """Where the declaration comes from: file, model or default."""
    example_shape: tuple[int, ...]
    note: str = ""

    @property
    def element_count(self) -> int:
        """Elements of the example."""
        return element_count(self.example_shape)


@dataclass(frozen=True, slots=True)
class OutputPromise:
    name: str
    datatype: str
    shape: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    model: str
    inputs: tuple[InputRequirement, ...]
    outputs: tuple[OutputPromise, ...]
    notes: tuple[str, ...] = ()
    sequence_id: int | str = 0
    """Of the example, for a model that wants sequences; 0 for any other."""

    @property
    def is_json(self) -> bool:
        """Is the example small, and of types that JSON may carry?"""
        elements = sum(item.element_count for item in self._sent)
        return elements <= MAX_JSON_ELEMENTS and all(
            item.datatype not in _BINARY_ONLY for item in self._sent
        )

    @property
    def _sent(self) -> list[InputRequirement]:
        return [item for item in self.inputs if not item.is_optional] or list(self.inputs[:1])

    def request(self) -> dict[str, Any]:
        """JSON body of an example request, with zeros."""
        return {
            **self._sequence(),
            **self._wanted_outputs(),
            "inputs": [
                {
                    "name": item.name,
                    "shape": list(item.example_shape),
                    "datatype": item.datatype,
                    "data": [_zero(item.datatype)] * item.element_count,
                }
                for item in self._sent
            ],
        }

    def _sequence(self) -> dict[str, Any]:
        """The example is a sequence of one request."""
        if not self.sequence_id:
            return {}
        flags = {"sequence_start": True, "sequence_end": True}
        return {"parameters": {"sequence_id": self.sequence_id, **flags}}

    @property
    def _has_binary_answer(self) -> bool:
        return any(item.datatype in _BINARY_ONLY for item in self.outputs)

    def _wanted_outputs(self) -> dict[str, Any]:
        """Outputs that JSON cannot carry must be asked for in binary form."""
        if not self._has_binary_answer:
            return {}
        wanted = [
            {"name": item.name, "parameters": {"binary_data": item.datatype in _BINARY_ONLY}}
            for item in self.outputs
        ]
        return {"outputs": wanted}

    def curl(self, url: str, headers: Mapping[str, str] | None = None) -> str:
        """A shell command that sends the example to the server at `url`."""
        target = f"{url.rstrip('/')}/v2/models/{quote(self.model, safe='')}/infer"
        options = [f"-H {shlex.quote(f'{key}: {value}')}" for key, value in (headers or {}).items()]
        if self._has_binary_answer:
            options.append("-o response.bin -w '%{http_code} %{size_download} bytes\\n'")
        if self.is_json:
            options += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(_pretty(self))}"]
            return _command("curl -s", [shlex.quote(target), *options])
        head, size = self._binary()
        options += [
            "-H 'Content-Type: application/octet-stream'",
            f"-H 'Inference-Header-Content-Length: {len(head.encode())}'",
            "--data-binary @-",
        ]
        source = f"{{ printf %s {shlex.quote(head)}; head -c {size} /dev/zero; }}"
        return f"{source} |\n{_command('curl -s', [shlex.quote(target), *options])}"

    def _binary(self) -> tuple[str, int]:
        """JSON head of a binary request, and the number of zero bytes that follow it."""
        total = 0
        inputs = []
        for item in self._sent:
            # A BYTES element is a length of 4 bytes and that many bytes: zeros are empty strings.
            size = item.element_count * (_datatype(item.datatype).size or 4)
            total += size
            inputs.append(
                {
                    "name": item.name,
                    "shape": list(item.example_shape),
                    "datatype": item.datatype,
                    "parameters": {"binary_data_size": size},
                }
            )
        head = {**self._sequence(), **self._wanted_outputs(), "inputs": inputs}
        return json.dumps(head, ensure_ascii=False), total

    def python(self, url: str, headers: Mapping[str, str] | None = None) -> str:
        """A Python program that sends the example with tritonclient."""
        parts = urlsplit(url if "//" in url else f"//{url}")
        address = parts.netloc + parts.path.rstrip("/")
        secure = ", ssl=True" if parts.scheme == "https" else ""
        halves = ["import ml_dtypes"] if any(x.datatype == "BF16" for x in self._sent) else []
        lines = [
            *halves,
            "import numpy as np",
            "import tritonclient.http as triton",
            "",
            f"client = triton.InferenceServerClient({address!r}{secure})",
            "inputs = [",
        ]
        lines += [
            f"    triton.InferInput({item.name!r}, {list(item.example_shape)}, {item.datatype!r}),"
            for item in self._sent
        ]
        lines.append("]")
        lines += [
            f"inputs[{index}].set_data_from_numpy({_array(item)})"
            for index, item in enumerate(self._sent)
        ]
        parameters = self._sequence().get("parameters", {})
        extra = "".join(f", {name}={value!r}" for name, value in parameters.items())
        extra += f", headers={dict(headers)!r}" if headers else ""
        lines.append(f"result = client.infer({self.model!r}, inputs{extra})")
        lines += [f"print({item.name!r}, result.as_numpy({item.name!r}))" for item in self.outputs]
        return "\n".join(lines) + "\n"


def explain(effective: pb.ModelConfig, origins: Mapping[str, str] | None = None) -> Explanation:
    """What requests to a model with this completed config must look like."""
    origins = origins or {}
    batching = effective.max_batch_size > 0
    inputs = tuple(
        _requirement(item, batching, _origin(origins, index))
        for index, item in enumerate(effective.input)
        if item.data_type in BY_CONFIG_NUMBER
    )
    outputs = tuple(
        OutputPromise(
            item.name,
            BY_CONFIG_NUMBER[item.data_type].name,
            _full(_told_dims(effective, item), batching),
            f"classes named in {item.label_filename}" if item.label_filename else "",
        )
        for item in effective.output
        if item.data_type in BY_CONFIG_NUMBER
    )
    return Explanation(effective.name, inputs, outputs, _notes(effective), _sequence_id(effective))


def _told_dims(config: pb.ModelConfig, output: pb.ModelOutput) -> list[int]:
    """FIL, unlike other backends, drops dimensions of one element from its answers."""
    has_rows = config.max_batch_size > 0 or len(output.dims) > 1
    is_flat = config.backend == "fil" and has_rows and not output.HasField("reshape")
    return [dim for dim in output.dims if not (is_flat and dim == 1)]


def _sequence_id(config: pb.ModelConfig) -> int | str:
    """An example of the kind that the model takes; iterative models need none."""
    sequence = config.sequence_batching
    if not config.HasField("sequence_batching") or sequence.iterative_sequence:
        return 0
    wants_text = any(
        control.kind == pb.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID
        and control.data_type == pb.TYPE_STRING
        for item in sequence.control_input
        for control in item.control
    )
    return "my-sequence" if wants_text else 1


def _requirement(item: pb.ModelInput, batching: bool, origin: str) -> InputRequirement:
    datatype = BY_CONFIG_NUMBER[item.data_type]
    shape = _full(item.dims, batching)
    notes = []
    if not datatype.json_allowed:
        notes.append(f"{datatype.name} travels in binary form only, never as JSON numbers")
    if item.allow_ragged_batch:
        notes.append("requests of different shapes may share a batch")
    return InputRequirement(
        item.name,
        datatype.name,
        shape,
        item.optional,
        origin,
        tuple(1 if dim < 0 else dim for dim in shape),
        "; ".join(notes),
    )


def _full(dims: Any, batching: bool) -> tuple[int, ...]:
    return (-1, *dims) if batching else tuple(dims)


def _origin(origins: Mapping[str, str], index: int) -> str:
    return origins.get(f"input[{index}]") or origins.get("input") or "file"


def _notes(config: pb.ModelConfig) -> tuple[str, ...]:
    notes = []
    size = config.max_batch_size
    if size > 0 and config.HasField("sequence_batching"):
        notes.append(
            "The first dimension of every shape is the batch, and always 1: a request is one item "
            "of its sequence. The config does not list it in dims."
        )
    elif size > 0:
        notes.append(
            f"The first dimension of every shape is the batch: 1 to {size}, the same for all "
            f"inputs. The config does not list it in dims."
        )
    else:
        notes.append("max_batch_size is 0: shapes are exact, there is no batch dimension.")
    if config.model_transaction_policy.decoupled:
        notes.append(
            "The model is decoupled: it may answer several times, so use gRPC streaming "
            "(or /generate_stream) instead of a plain request."
        )
    if config.sequence_batching.iterative_sequence:
        notes.append("Each request is a sequence of its own: the model may execute it repeatedly.")
    elif config.HasField("sequence_batching"):
        notes.append(
            "Requests belong to a sequence: give sequence_id, sequence_start with the first one "
            "and sequence_end with the last."
        )
    return tuple(notes)


def _datatype(name: str) -> DataType:
    return next(item for item in BY_CONFIG_NUMBER.values() if item.name == name)


def _zero(datatype: str) -> Any:
    if datatype == "BYTES":
        return "text"
    if datatype == "BOOL":
        return False
    return 0.0 if datatype.startswith("FP") else 0


def _array(item: InputRequirement) -> str:
    """Source text of a NumPy array for one input."""
    shape = list(item.example_shape)
    if item.datatype == "BYTES":
        return f'np.full({shape}, b"text", dtype=object)'
    if item.datatype == "BF16":
        return f"np.zeros({shape}, dtype=ml_dtypes.bfloat16)"
    return f"np.zeros({shape}, dtype=np.{_datatype(item.datatype).dtype.name})"


def _pretty(explanation: Explanation) -> str:
    """JSON with one input a line."""
    request = explanation.request()
    rows = [json.dumps(item, ensure_ascii=False) for item in request.pop("inputs")]
    rest = "".join(f'"{key}": {json.dumps(value)}, ' for key, value in request.items())
    return f'{{{rest}"inputs": [\n  ' + ",\n  ".join(rows) + "\n]}"


def _command(program: str, arguments: list[str]) -> str:
    return " \\\n  ".join([f"{program} {arguments[0]}", *arguments[1:]])
