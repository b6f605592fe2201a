"""One HTTP inference exchange: body bytes to InferenceRequest, InferenceResponse to body parts.

Ties v2_json (the header), json_tensor and v2_binary (the tensors) and classification together.
Pure; any thread. Source: spec protocol_http.md C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from numpy.typing import NDArray

from serving.client_memory import ClientMemory
from serving.config.decode import ModelSpec
from serving.datatypes import BY_NAME, DataType, bytes_from_array, element_count
from serving.errors import InvalidArgumentError
from serving.protocol import v2_binary
from serving.protocol.big_json import BIG_BYTES, BIG_ELEMENTS, PLACEHOLDER, BigArray, array_pieces
from serving.protocol.classification import classify
from serving.protocol.json_tensor import array_from_json, is_numeric, output_data
from serving.protocol.known_requests import KnownRequest
from serving.protocol.parameters import apply_parameter, bool_value
from serving.protocol.tensor_counts import check_tensor_counts
from serving.protocol.v2_json import (
    DATA_SOURCES,
    NO_DATA,
    InferHeader,
    InputHeader,
    LooseInferHeader,
    LooseInputHeader,
    OutputHeader,
    TrailingDataError,
    decode_big_infer,
    decode_infer_header,
)
from serving.request import InferenceRequest, InputTensor, RequestedOutput
from serving.response import InferenceResponse, OutputTensor

Body = bytes | memoryview


_REGION = "shared_memory_region"


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What a server allows a request to bring along."""

    max_json_size: int
    memory: ClientMemory = field(default_factory=ClientMemory)


@dataclass(slots=True)
class DecodedRequest:
    request: InferenceRequest
    is_binary_by_default: bool = False
    """Where no outputs were listed; a listed output is JSON unless it says binary_data."""
    known: KnownRequest | None = None
    """What an equal request has come to."""


def parse_header_length(text: str, body_size: int) -> int:
    """The value of Inference-Header-Content-Length: bytes of JSON at the start of the body."""
    if not text.isascii() or not text.isdigit() or not 0 <= int(text[:20]) <= body_size:
        raise InvalidArgumentError(
            "Inference-Header-Content-Length must be an integer from 0 to the size of the body, "
            f"{body_size} bytes; got '{text[:40]}'"
        )
    return int(text)


def decode_request(
    body: memoryview,
    header_length: int | None,
    spec: ModelSpec,
    version: int,
    limits: DecodeLimits,
) -> DecodedRequest:
    """Build the request. `header_length` None: the whole body is JSON; 0: a raw request.

    The request's arrays are views of `body`, or read from client shared memory.
    Raises: InvalidArgumentError, UnsupportedError, NotFoundError.
    """
    max_json_size = limits.max_json_size
    request = InferenceRequest(spec.name, version)
    if header_length == 0:
        tensor = v2_binary.raw_input(body, spec)
        request.inputs[tensor.name] = tensor
        return DecodedRequest(request, is_binary_by_default=True)
    size = len(body) if header_length is None else header_length
    if size > max_json_size:
        raise InvalidArgumentError(
            f"the JSON of the request has {size} bytes, more than --http-max-input-size allows "
            f"({max_json_size}); send tensors as binary data"
        )
    big = decode_big_infer(body[:size]) if size >= BIG_BYTES else None
    header = big.header if big is not None else _header(body, size, header_length, spec.name)
    # Before the tensors are: absurd numbers of them would take the loop seconds.
    check_tensor_counts(len(header.inputs), len(header.outputs), spec)
    request.id = header.id
    decoded = DecodedRequest(request)
    for name, value in header.parameters.items():
        if name == "binary_data_output":
            decoded.is_binary_by_default = bool_value(name, value)
        else:
            apply_parameter(request, name, value)
    tail = _Tail(body[size:], spec.name)
    inputs: Sequence[InputHeader | LooseInputHeader] = header.inputs
    for index, item in enumerate(inputs):
        if item.name in request.inputs:
            raise InvalidArgumentError(
                f"input '{item.name}' already exists in request for model '{spec.name}'"
            )
        array = None if big is None else big.arrays.get(index)
        request.inputs[item.name] = _input(item, array, spec.name, tail, limits)
    tail.check_exhausted(request.inputs)
    for output in header.outputs:
        request.requested_outputs.append(_output(output, limits.memory))
    return decoded


def _header(
    body: memoryview, size: int, header_length: int | None, model: str
) -> InferHeader | LooseInferHeader:
    try:
        return decode_infer_header(bytes(body[:size]))
    except TrailingDataError as error:
        # Often the length header got lost or is wrong: say so where the JSON itself shows it.
        header = decode_infer_header(bytes(body[: error.position]))
        for item in header.inputs:
            if "binary_data_size" in item.parameters:
                says = "is missing" if header_length is None else f"says {header_length}"
                raise InvalidArgumentError(
                    f"the JSON of the request ends at byte {error.position}, where the binary data "
                    f"of input '{item.name}' of model '{model}' "
                    f"({item.parameters['binary_data_size']} bytes) should begin, but the header "
                    f"Inference-Header-Content-Length {says}"
                ) from None
        raise


class _Tail:
    """The raw tensors behind the JSON, handed out in input order."""

    def __init__(self, data: memoryview, model: str) -> None:
        self._data = data
        self._model = model
        self._offset = 0

    def take(self, size: int, tensor: str) -> memoryview:
        left = len(self._data) - self._offset
        if size > left:
            raise InvalidArgumentError(
                f"unable to find enough data for {tensor}: binary_data_size is {size} bytes, "
                f"{left} bytes are left in the body"
            )
        start = self._offset
        self._offset += size
        return self._data[start : self._offset]

    def check_exhausted(self, inputs: dict[str, InputTensor]) -> None:
        left = len(self._data) - self._offset
        if left:
            raise InvalidArgumentError(
                f"unexpected additional input data: {left} bytes follow those of the inputs "
                f"{', '.join(inputs)} of model '{self._model}'"
            )


def _input(
    item: InputHeader | LooseInputHeader,
    array: BigArray | None,
    model: str,
    tail: _Tail,
    limits: DecodeLimits,
) -> InputTensor:
    tensor = f"input '{item.name}' of model '{model}'"
    has_data = item.data is not NO_DATA and item.data is not msgspec.UNSET
    binary_size = item.parameters.get("binary_data_size")
    region = item.parameters.get(_REGION)
    sources = has_data + (binary_size is not None) + (region is not None)
    if sources != 1:
        problem = "no data" if sources == 0 else "data from several sources"
        raise InvalidArgumentError(f"{tensor} has {problem}; it must have {DATA_SOURCES}")
    datatype = _datatype(item.datatype, tensor)
    shape = v2_binary.check_shape(item.shape, tensor)
    raw: memoryview | bytearray | None = None
    if binary_size is not None:
        raw = tail.take(_binary_size(binary_size, tensor), tensor)
    elif region is not None:
        raw = limits.memory.part(item.parameters, tensor).read()
    if raw is not None:
        return InputTensor(
            item.name, datatype, shape, v2_binary.array_from_bytes(raw, datatype, shape, tensor)
        )
    if element_count(shape) * max(1, datatype.size) > limits.max_json_size:
        raise InvalidArgumentError(
            f"{tensor}: shape {list(shape)} of {datatype.name} is larger than "
            f"--http-max-input-size allows for a JSON tensor ({limits.max_json_size} bytes)"
        )
    data = item.data if array is None else array
    return InputTensor(item.name, datatype, shape, array_from_json(data, datatype, shape, tensor))


def _datatype(name: str, tensor: str) -> DataType:
    datatype = BY_NAME.get(name)
    if datatype is None:
        raise InvalidArgumentError(
            f"{tensor} has the unknown datatype '{name}'; known are {', '.join(BY_NAME)}"
        )
    return datatype


def _binary_size(value: object, tensor: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(
            f"Unable to parse 'binary_data_size' of {tensor}: it must be an unsigned integer, got "
            f"{value!r}"
        )
    return value


def _output(item: OutputHeader, memory: ClientMemory) -> RequestedOutput:
    parameters = item.parameters
    output = RequestedOutput(item.name)
    if not parameters:
        return output
    where = f"output '{item.name}'"
    if _REGION in parameters:
        for other in ("classification", "binary_data"):
            if parameters.get(other):
                raise InvalidArgumentError(
                    f"{where}: '{other}' cannot be combined with '{_REGION}'"
                )
        output.buffer = memory.part(parameters, where)
    if "classification" in parameters:
        output.classification_count = _classification(parameters["classification"], where)
    if "binary_data" in parameters:
        output.binary = bool_value("binary_data", parameters["binary_data"])
    for name, value in parameters.items():
        if isinstance(value, str | bool | int | float):
            output.parameters[name] = value
    return output


def _classification(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise InvalidArgumentError(
            f"{where}: parameter 'classification' must be a positive integer, got {value!r}"
        )
    return value


@dataclass(slots=True)
class EncodedResponse:
    parts: list[Body]
    json_size: int = 0
    """Bytes of JSON at the start, when binary tensors follow; else 0."""
    is_binary: bool = False


def encode_response(
    decoded: DecodedRequest,
    response: InferenceResponse,
    spec: ModelSpec,
    labels_of: Callable[[str], Sequence[str]],
) -> EncodedResponse:
    """Encode a response without error. Raises InvalidArgumentError where a tensor cannot go out."""
    wanted = {output.name: output for output in decoded.request.requested_outputs}
    tail: list[Body] = []
    big: list[NDArray[Any]] = []
    outputs: list[dict[str, Any]] = []
    is_any_binary = False
    for tensor in response.outputs:
        output = wanted.get(tensor.name)
        if output is not None and output.classification_count:
            tensor = classify(
                tensor,
                output.classification_count,
                labels_of(tensor.name),
                has_batch_axis=spec.has_batch_axis,
            )
        if output is not None and output.buffer is not None:
            output.buffer.write(bytes_from_array(tensor.array, tensor.datatype), tensor.name)
            outputs.append(_head(tensor))
            continue
        is_binary = decoded.is_binary_by_default if output is None else output.binary
        is_any_binary |= is_binary
        outputs.append(_encode_output(tensor, is_binary, tail, big))
    head: dict[str, Any] = {"id": response.id} if response.id else {}
    head["model_name"] = response.model_name
    head["model_version"] = str(response.model_version)
    if response.parameters:
        head["parameters"] = response.parameters
    head["outputs"] = outputs
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    parts: list[Body] = [text]
    if big:
        parts = []
        for before, array in zip(text.split(PLACEHOLDER), [*big, None], strict=True):
            parts += [before] if array is None else [before, *array_pieces(array)]
    if not is_any_binary:
        return EncodedResponse(parts)
    return EncodedResponse([*parts, *tail], sum(map(len, parts)), is_binary=True)


def json_elements(decoded: DecodedRequest, response: InferenceResponse) -> int:
    """How many elements `encode_response` will write as JSON, roughly."""
    binary = {
        output.name: output.binary or output.buffer is not None
        for output in decoded.request.requested_outputs
    }
    return sum(
        tensor.array.size
        for tensor in response.outputs
        if not binary.get(tensor.name, decoded.is_binary_by_default)
    )


def _head(tensor: OutputTensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype.name, "shape": tensor.shape}


def _encode_output(
    tensor: OutputTensor, is_binary: bool, tail: list[Body], big: list[NDArray[Any]]
) -> dict[str, Any]:
    head = _head(tensor)
    if is_binary:
        raw = bytes_from_array(tensor.array, tensor.datatype)
        head["parameters"] = {"binary_data_size": len(raw)}
        tail.append(raw)
    elif is_numeric(tensor) and tensor.array.size >= BIG_ELEMENTS:
        head["data"] = orjson.Fragment(PLACEHOLDER)
        big.append(tensor.array.reshape(-1))
    else:
        head["data"] = output_data(tensor)
    return head
