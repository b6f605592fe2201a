"""Requests split by hand mean what protobuf says they mean."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from serving.errors import InvalidArgumentError
from serving.protocol.v2_grpc_split import first_raw_offset, split_request

TEXT = st.text(max_size=12)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    message = service_pb2.ModelInferRequest(
        model_name=draw(TEXT), model_version=draw(TEXT), id=draw(TEXT)
    )
    for name in draw(st.lists(TEXT, max_size=3)):
        message.parameters[name].int64_param = draw(st.integers(-(2**63), 2**63 - 1))
    for name in draw(st.lists(TEXT, max_size=3)):
        item = message.inputs.add(
            name=name, datatype="FP32", shape=draw(st.lists(st.integers(0, 2**63 - 1)))
        )
        item.parameters[name].bool_param = True
        if draw(st.booleans()):
            item.contents.fp32_contents.append(0.5)
        message.outputs.add(name=name).parameters[name].string_param = name
    message.raw_input_contents.extend(draw(st.lists(st.binary(max_size=300), max_size=3)))
    return message


def whole(data: bytes) -> Any:
    """What the parts say, put together again; None where they are refused."""
    try:
        split = split_request(data)
    except InvalidArgumentError:
        return None
    head = split.head
    message = service_pb2.ModelInferRequest(
        model_name=head.model_name, model_version=head.model_version, id=split.id
    )
    for name, value in head.parameters:
        message.parameters[name].CopyFrom(value)
    for item in head.inputs:
        added = message.inputs.add(name=item.name, datatype=item.datatype, shape=item.shape)
        _copy_parameters(item, added)
        if item.contents is not None:
            added.contents.CopyFrom(item.contents)
    for output in head.outputs:
        _copy_parameters(output, message.outputs.add(name=output.name))
    message.raw_input_contents.extend(map(bytes, split.raw))
    return message


def _copy_parameters(head: Any, message: Any) -> None:
    for name, value in (head.parameters or {}).items():
        message.parameters[name].CopyFrom(value)


def parsed(data: bytes) -> Any:
    try:
        message = service_pb2.ModelInferRequest.FromString(data)
    except DecodeError:
        return None
    message.DiscardUnknownFields()
    return message


@given(requests())
def test_a_request_is_what_it_was(message: Any) -> None:
    assert whole(message.SerializeToString()) == message


@given(requests(), st.data())
def test_broken_bytes_are_judged_as_protobuf_does(message: Any, data: st.DataObject) -> None:
    raw = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for broken in (bytes(raw), bytes(raw[:cut])):
        assert whole(broken) == parsed(broken)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_judged_as_protobuf_does(data: bytes) -> None:
    assert whole(data) == parsed(data)


@pytest.mark.parametrize(
    "odd",
    [
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # an unknown varint of ten bytes
        b"\x7b\x7c",  # an unknown group
        b"\xba\x00\x01a",  # the tag of raw contents, longer than needed
        b"\x1a\x01a\x1a\x01b",  # the last id counts
        b"\x1a\x01\xff",  # an id that is no text
        b"\x02\x00",  # there is no field 0
        b"\x3a\x05ab",
        b"\x3d\0\0\0\0",  # the number of raw contents with another type: unknown
    ],
)
def test_odd_wire_forms_are_judged_as_protobuf_does(odd: bytes) -> None:
    data = odd + service_pb2.ModelInferRequest(model_name="m").SerializeToString()
    assert whole(data) == parsed(data)
    assert whole(odd) == parsed(odd)


def test_equal_requests_share_what_was_parsed_and_have_their_own_tensors() -> None:
    message = service_pb2.ModelInferRequest(model_name="shared", id="1")
    message.raw_input_contents.append(b"one")
    first = split_request(message.SerializeToString())
    message.id, message.raw_input_contents[0] = "2", b"two"
    second = split_request(message.SerializeToString())
    assert first.head is second.head
    assert (first.id, [bytes(raw) for raw in first.raw]) == ("1", [b"one"])
    assert (second.id, [bytes(raw) for raw in second.raw]) == ("2", [b"two"])


def test_the_place_of_the_first_tensor_is_found_in_the_beginning() -> None:
    message = service_pb2.ModelInferRequest(model_name="m")
    message.inputs.add(name="INPUT0")
    message.raw_input_contents.append(b"\xee" * 1000)
    wire = message.SerializeToString()
    assert first_raw_offset(memoryview(wire[:60])) == wire.index(b"\xee")
    assert first_raw_offset(memoryview(wire[:4])) == 0
    assert first_raw_offset(memoryview(b"")) == 0
