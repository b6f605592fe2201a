"""gRPC messages to requests and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from serving.client_memory import ClientMemory
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError, NotFoundError
from serving.protocol.v2_grpc import decode_request
from serving.protocol.v2_grpc_encode import encode_response
from serving.protocol.v2_grpc_split import SplitRequest
from serving.request import InferenceRequest, RequestedOutput
from serving.response import InferenceResponse, OutputTensor
from tests.serving.protocol.specs import identity_spec


def message(datatype: str = "FP32", shape: tuple[int, ...] = (2,)) -> Any:
    request = service_pb2.ModelInferRequest(model_name="m", id="r")
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    return request


def with_raw(raw: bytes, **how: Any) -> Any:
    request = message(**how)
    request.raw_input_contents.append(raw)
    return request


def decode(request: Any) -> InferenceRequest:
    return decode_request(SplitRequest.of(request), identity_spec(), 1, ClientMemory())


def encode(request: InferenceRequest, response: InferenceResponse) -> Any:
    parts = encode_response(request, response, identity_spec(), lambda name: [])
    return service_pb2.ModelInferResponse.FromString(b"".join(parts))


@pytest.mark.parametrize(
    ("datatype", "field", "sent", "got"),
    [
        ("BOOL", "bool_contents", [True, False], [True, False]),
        ("INT8", "int_contents", [-1, 300], [-1, 44]),
        ("INT32", "int_contents", [-1, 2], [-1, 2]),
        ("INT64", "int64_contents", [-(2**63), 2], [-(2**63), 2]),
        ("UINT16", "uint_contents", [1, 65537], [1, 1]),
        ("UINT64", "uint64_contents", [2**64 - 1, 0], [2**64 - 1, 0]),
        ("FP32", "fp32_contents", [0.5, 2], [0.5, 2]),
        ("FP64", "fp64_contents", [0.1, 2], [0.1, 2]),
        ("BYTES", "bytes_contents", [b"a", b""], [b"a", b""]),
    ],
)
def test_typed_contents_become_the_tensor(
    datatype: str, field: str, sent: list[Any], got: list[Any]
) -> None:
    request = message(datatype)
    getattr(request.inputs[0].contents, field).extend(sent)

    tensor = decode(request).inputs["INPUT0"]

    assert tensor.array.tolist() == got
    assert tensor.array.dtype == BY_NAME[datatype].dtype


def test_raw_contents_are_viewed_not_copied() -> None:
    array = decode(with_raw(np.array([1, 2], dtype=np.float32).tobytes())).inputs["INPUT0"].array

    assert array.tolist() == [1, 2]
    assert not array.flags.owndata


def test_parameters_of_every_type() -> None:
    request = with_raw(b"\0" * 8)
    request.parameters["a"].string_param = "x"
    request.parameters["b"].int64_param = -1
    request.parameters["c"].bool_param = True
    request.parameters["d"].double_param = 0.5
    request.parameters["sequence_id"].int64_param = 7
    request.parameters["priority"].uint64_param = 3
    request.parameters["triton_enable_empty_final_response"].bool_param = True

    got = decode(request)

    assert got.parameters == {
        "a": "x",
        "b": -1,
        "c": True,
        "d": 0.5,
        "triton_enable_empty_final_response": True,
    }
    assert (got.id, got.correlation_id, got.priority) == ("r", 7, 3)


def broken() -> list[tuple[Any, str]]:
    both = with_raw(b"\0" * 8)
    both.inputs[0].contents.fp32_contents.append(1)
    two = with_raw(b"\0" * 8)
    two.raw_input_contents.append(b"")
    twice = with_raw(b"\0" * 8)
    twice.inputs.append(twice.inputs[0])
    twice.raw_input_contents.append(b"\0" * 8)
    wrong = message()
    wrong.inputs[0].contents.int_contents.extend([1, 2])
    few = message()
    few.inputs[0].contents.fp32_contents.append(1)
    empty_parameter = with_raw(b"\0" * 8)
    empty_parameter.parameters["a"].SetInParent()
    reserved = with_raw(b"\0" * 8)
    reserved.parameters["triton_x"].bool_param = True
    classification = with_raw(b"\0" * 8)
    classification.outputs.add(name="O").parameters["classification"].string_param = "3"
    offset = with_raw(b"\0" * 8)
    offset.inputs[0].parameters["shared_memory_offset"].int64_param = 1
    unsigned = with_raw(b"\0" * 8)
    unsigned.parameters["a"].uint64_param = 1
    half = message("FP16")
    half.inputs[0].contents.fp32_contents.extend([1, 2])
    return [
        (both, "both typed contents and raw"),
        (two, "1 inputs without shared memory but 2 entries"),
        (twice, "already exists"),
        (wrong, "unexpected explicit tensor data"),
        (few, "needs 2 elements"),
        (message(), "unable to find data"),
        (half, "raw_input_contents"),
        (with_raw(b"\0" * 7), "needs 8 bytes, got 7"),
        (with_raw(b"", shape=(-1,)), "negative"),
        (with_raw(b"", shape=(2**62, 4)), "int64"),
        (with_raw(b"", datatype="FOO"), "FOO"),
        (empty_parameter, "no value"),
        (reserved, "triton_x"),
        (unsigned, "invalid value type for 'a' parameter"),
        (classification, "classification"),
        (offset, "shared_memory_offset"),
    ]


@pytest.mark.parametrize(("request_message", "words"), broken())
def test_mistakes_are_refused_by_name(request_message: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        decode(request_message)


def test_a_region_of_shared_memory_that_nobody_registered_is_not_found() -> None:
    request = message()
    request.inputs[0].parameters["shared_memory_region"].string_param = "r"
    request.inputs[0].parameters["shared_memory_byte_size"].int64_param = 8

    with pytest.raises(NotFoundError, match="allow-client-shm"):
        decode(request)


def test_response_carries_raw_contents_in_output_order() -> None:
    tensors = [
        OutputTensor("A", BY_NAME["INT16"], (2,), np.array([1, 2], dtype=np.int16)),
        OutputTensor("B", BY_NAME["BYTES"], (1,), np.array([b"x"], dtype=np.object_)),
    ]
    response = InferenceResponse("m", 3, "r", tensors, {"i": 1, "b": True, "d": 0.5, "s": "t"})
    response.parameters["u"] = 2**63  # the id of a sequence, which an ensemble gives back

    answer = encode(InferenceRequest("m"), response)

    assert (answer.model_name, answer.model_version, answer.id) == ("m", "3", "r")
    assert [item.name for item in answer.outputs] == ["A", "B"]
    assert list(answer.raw_output_contents) == [b"\1\0\2\0", b"\1\0\0\0x"]
    assert answer.parameters["b"].bool_param
    assert answer.parameters["i"].int64_param == 1
    assert answer.parameters["u"].uint64_param == 2**63
    assert answer.parameters["d"].double_param == 0.5
    assert answer.parameters["s"].string_param == "t"


def test_classification_applies_to_the_outputs_that_asked() -> None:
    tensor = OutputTensor("A", BY_NAME["FP32"], (2,), np.array([1, 2], dtype=np.float32))
    request = InferenceRequest("m", requested_outputs=[RequestedOutput("A", 1)])

    answer = encode(request, InferenceResponse("m", 1, outputs=[tensor]))

    assert answer.outputs[0].datatype == "BYTES"
    assert answer.raw_output_contents[0][4:] == b"2.000000:1"


def test_arbitrary_bytes_never_crash_the_decoder() -> None:
    random = np.random.default_rng(7)

    for size in range(5, 400, 7):
        with pytest.raises(InvalidArgumentError, match="INPUT0"):
            decode(with_raw(random.bytes(size), datatype="BYTES", shape=(3,)))


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1,) * 202, "202 dimensions, at most 64"), ((0, 2**40, 2**40), "impossible shape")],
)
@pytest.mark.parametrize("is_raw", [True, False])
def test_shapes_that_no_array_can_have_are_refused(
    shape: tuple[int, ...], words: str, is_raw: bool
) -> None:
    count = 0 if 0 in shape else 1
    request = message("FP32", shape)
    if is_raw:
        request.raw_input_contents.append(bytes(4 * count))
    else:
        request.inputs[0].contents.fp32_contents.extend([1.0] * count)

    with pytest.raises(InvalidArgumentError, match=words):
        decode(request)
