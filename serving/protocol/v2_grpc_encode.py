"""InferenceResponse to ModelInferResponse, written by hand so that tensors are not copied.

The parts that repeat from one response to the next are kept as bytes. Pure but for these caches;
loop thread. Source: spec GRPC-007, GRPC-025, GRPC-032, GRPC-034.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from serving.config.decode import ModelSpec
from serving.datatypes import bytes_from_array
from serving.protocol.classification import classify
from serving.protocol.parameters import INT64_MAX
from serving.protocol.service_pb import pb
from serving.request import InferenceRequest, RequestedOutput
from serving.response import InferenceResponse, ParameterValue

Part = bytes | memoryview

_ID = b"\x1a"
_RAW = b"\x32"
_INFER_RESPONSE = b"\x12"
_PLAIN = RequestedOutput("")
_JOIN_BELOW = 64 * 1024


def encode_response(
    request: InferenceRequest,
    response: InferenceResponse,
    spec: ModelSpec,
    labels_of: Callable[[str], Sequence[str]],
) -> list[Part]:
    """A ModelInferResponse of a response without error. Raises InvalidArgumentError."""
    parts: list[Part] = [_model(response.model_name, response.model_version)]
    if response.id:
        text = response.id.encode()
        parts += (_ID, _varint(len(text)), text)
    if response.parameters:
        parts.append(_parameters(response.parameters))
    wanted = {item.name: item for item in request.requested_outputs}
    raws: list[Part] = []
    for tensor in response.outputs:
        output = wanted.get(tensor.name, _PLAIN)
        if output.classification_count:
            tensor = classify(
                tensor,
                output.classification_count,
                labels_of(tensor.name),
                has_batch_axis=spec.has_batch_axis,
            )
        parts.append(_output(tensor.name, tensor.datatype.name, tensor.shape))
        raw: Part = bytes_from_array(tensor.array, tensor.datatype)
        if output.buffer is not None:
            output.buffer.write(raw, tensor.name)
            raw = b""  # clients count the entries
        raws += (_RAW, _varint(len(raw)), raw)
    return _joined(parts + raws)


def encode_stream_response(parts: list[Part], *, is_final: bool) -> list[Part]:
    """A ModelStreamInferResponse around the parts of a ModelInferResponse (GRPC-034)."""
    flag = _FINAL if is_final else _NOT_FINAL
    size = sum(map(len, parts)) + len(flag)
    return _joined([_INFER_RESPONSE, _varint(size), flag, *parts])


def encode_stream_error(request_id: str, model_name: str, message: str) -> list[Part]:
    """A ModelStreamInferResponse that tells of a failed request (GRPC-032)."""
    inner = pb.ModelInferResponse(id=request_id, model_name=model_name)
    outer = pb.ModelStreamInferResponse(error_message=message, infer_response=inner)
    return [outer.SerializeToString()]


def _joined(parts: list[Part]) -> list[Part]:
    """Small ones in one piece: cheaper than to send each of them."""
    if sum(map(len, parts)) < _JOIN_BELOW:
        return [b"".join(parts)]
    out: list[Part] = []
    small: list[Part] = []
    for part in parts:
        if len(part) < _JOIN_BELOW:
            small.append(part)
            continue
        out += (b"".join(small), part)
        small = []
    return [*out, b"".join(small)] if small else out


@functools.lru_cache(maxsize=256)
def _model(name: str, version: int) -> bytes:
    head = pb.ModelInferResponse(model_name=name, model_version=str(version))
    return bytes(head.SerializeToString())


@functools.lru_cache(maxsize=1024)
def _output(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    message = pb.ModelInferResponse()
    message.outputs.add(name=name, datatype=datatype, shape=shape)
    return bytes(message.SerializeToString())


def _parameters(parameters: dict[str, ParameterValue]) -> bytes:
    message = pb.ModelInferResponse()
    for name, value in parameters.items():
        item = message.parameters[name]
        if isinstance(value, bool):
            item.bool_param = value
        elif isinstance(value, int) and value > INT64_MAX:  # a sequence id has all 64 bits
            item.uint64_param = value
        elif isinstance(value, int):
            item.int64_param = value
        elif isinstance(value, float):
            item.double_param = value
        else:
            item.string_param = value
    return bytes(message.SerializeToString())


_FINAL = _parameters({"triton_final_response": True})
_NOT_FINAL = _parameters({"triton_final_response": False})
_SHORT = tuple(bytes((value,)) for value in range(128))


def _varint(value: int) -> bytes:
    if value < 128:
        return _SHORT[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
