"""Requests and errors of absurd size: refused early, and cut to what can be sent."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from serving.client_memory import ClientMemory
from serving.errors import InvalidArgumentError, ServingError
from serving.protocol import v2_grpc
from serving.protocol.status import grpc_details
from serving.protocol.v2_grpc_split import SplitRequest
from serving.protocol.v2_http import DecodeLimits, decode_request
from tests.serving.protocol.specs import identity_spec


def message_with(inputs: int) -> Any:
    message = service_pb2.ModelInferRequest(model_name="m")
    for number in range(inputs):
        message.inputs.add(name=str(number), datatype="no type", shape=[1])
    return message


def json_with(inputs: int) -> memoryview:
    item = b'{"name":"%d","datatype":"no type","shape":[1],"data":[1]}'
    items = b",".join(item % number for number in range(inputs))
    return memoryview(b'{"inputs":[' + items + b"]}")


def test_far_too_many_tensors_are_refused_before_any_is_decoded() -> None:
    expected = "expected at most 1 inputs but got 1000 inputs for model 'm'"

    split = SplitRequest.of(message_with(1000))
    with pytest.raises(InvalidArgumentError, match=expected):
        v2_grpc.decode_request(split, identity_spec(), 1, ClientMemory())
    with pytest.raises(InvalidArgumentError, match=expected):
        decode_request(json_with(1000), None, identity_spec(), 1, DecodeLimits(1 << 20))


def test_a_few_too_many_are_left_to_the_checks_that_name_the_mistake() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown datatype"):
        decode_request(json_with(2), None, identity_spec(), 1, DecodeLimits(1 << 20))


@pytest.mark.parametrize("letter", ["x", "\n", "\u00e9", "\U0001f600", "%"])
def test_grpc_details_fit_into_a_trailer_once_they_are_percent_encoded(letter: str) -> None:
    details = grpc_details(letter * 20_000)

    encoded = sum(1 if 0x20 <= byte < 0x7F and byte != 0x25 else 3 for byte in details.encode())
    assert 6000 < encoded < 6200
    assert details.startswith(letter)
    assert details.endswith(" ... (cut)")


def test_ordinary_grpc_details_stay_as_they_are() -> None:
    assert grpc_details("caf\u00e9: no such model\n") == "caf\u00e9: no such model\n"


def test_an_error_spells_out_what_no_protocol_can_carry() -> None:
    error = ServingError("file \udcff.onnx of caf\u00e9")

    assert error.message == r"file \udcff.onnx of caf\u00e9".replace(r"\u00e9", "\u00e9")
