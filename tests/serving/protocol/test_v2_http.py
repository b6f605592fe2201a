"""An HTTP inference request: what is understood, and what each mistake is answered with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from serving.datatypes import serialize_bytes
from serving.errors import InvalidArgumentError, NotFoundError, ServingError, UnsupportedError
from serving.protocol.v2_http import (
    DecodedRequest,
    DecodeLimits,
    decode_request,
    parse_header_length,
)
from tests.serving.protocol.specs import identity_spec

LIMIT = 1024 * 1024
LIMITS = DecodeLimits(LIMIT)


def decode(
    body: dict[str, Any] | bytes, tail: bytes = b"", *, raw: bool = False, **spec: Any
) -> DecodedRequest:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = 0 if raw else len(text) if tail else None
    return decode_request(memoryview(text + tail), length, identity_spec(**spec), 1, LIMITS)


def request(datatype: str = "FP32", shape: Any = (2,), **members: Any) -> dict[str, Any]:
    item = {"name": "INPUT0", "datatype": datatype, "shape": list(shape), **members}
    return {"inputs": [item]}


def values(decoded: DecodedRequest) -> Any:
    return decoded.request.inputs["INPUT0"].array.tolist()


def message(body: dict[str, Any] | bytes, tail: bytes = b"", **spec: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        decode(body, tail, **spec)
    return caught.value.message


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("UINT16", [0, 65535]),
        ("UINT32", [0, 2**32 - 1]),
        ("UINT64", [0, 2**64 - 1]),
        ("INT8", [-128, 127]),
        ("INT16", [-(2**15), 2**15 - 1]),
        ("INT32", [-(2**31), 2**31 - 1]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP32", [0.5, -3]),
        ("FP64", [1e300, 0.1]),
    ],
)
def test_json_numbers_keep_their_value_over_the_whole_range(datatype: str, data: list[Any]) -> None:
    decoded = decode(request(datatype, data=data))

    assert values(decoded) == data
    assert (
        decoded.request.inputs["INPUT0"].array.dtype
        == identity_spec(datatype).inputs["INPUT0"].datatype.dtype
    )


@pytest.mark.parametrize(
    "data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[1], [2, 3], 4], [[[1, 2, 3]], 4]]
)
def test_data_may_be_nested_in_any_way(data: list[Any]) -> None:
    assert values(decode(request(shape=(2, 2), data=data))) == [[1, 2], [3, 4]]


def test_strings_become_bytes() -> None:
    assert values(decode(request("BYTES", data=["a", "\u00e9\u0000"]))) == [b"a", b"\xc3\xa9\x00"]


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_special_float_tokens_are_read(token: str) -> None:
    body = json.dumps(request(shape=[1], data=[12345])).replace("12345", token).encode()

    assert str(values(decode(body))[0]) in {"nan", "inf", "-inf"}


def test_a_double_beyond_fp32_becomes_an_infinity() -> None:
    assert values(decode(request(shape=[1], data=[1e39]))) == [float("inf")]


def test_byte_order_mark_is_skipped_and_the_first_of_repeated_members_counts() -> None:
    text = json.dumps(request(data=[1, 2])).encode()

    assert values(decode(b"\xef\xbb\xbf" + text)) == [1, 2]
    assert decode(b'{"inputs":[],' + text[1:]).request.inputs == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", ["byte 1"]),
        (b"", ["byte 0"]),
        (b'{"inputs":[],}', ["byte 13"]),
        (b"null", ["inputs"]),
        (b"[]", ["inputs"]),
        (b"{}", ["inputs"]),
        (b'{"inputs":null}', ["inputs"]),
        (b'{"inputs":["x"]}', ["inputs[0]", "data", "binary_data_size", "shared_memory_region"]),
        (b'{"id":7,"inputs":[]}', ["id"]),
        (b'{"inputs":[],"outputs":{}}', ["outputs"]),
        (b'{"inputs":[],"parameters":null}', ["parameters"]),
        (b'{"inputs":' + b"[" * 5000, ["inputs[0]"]),
        (b'{"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":' + b"[" * 5000, ["deep"]),
        (b'{"inputs":[],"x":"\\ud800"}', ["byte 18"]),
        (b'{"inputs":[],"id":"\xff"}', ["UTF-8"]),
    ],
)
def test_malformed_json_is_answered_with_the_place(body: bytes, words: list[str]) -> None:
    text = message(body)

    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, ["INPUT0", "no data", "shared_memory_region"]),
        ({"data": [1, 2], "parameters": {"binary_data_size": 8}}, ["INPUT0", "several"]),
        ({"data": [1]}, ["data", "2 elements", "got 1"]),
        ({"data": "abc"}, ["data", "array"]),
        ({"data": None}, ["data", "array"]),
        ({"data": [1, True]}, ["data", "true", "FP32"]),
        ({"data": [1, None]}, ["data", "null"]),
        ({"data": [1, {}]}, ["data", "{}"]),
        ({"data": [1, "2"]}, ["data", '"2"']),
        ({"datatype": "INT8", "data": [1, 128]}, ["data", "range", "INT8"]),
        ({"datatype": "UINT64", "data": [1, -1]}, ["data", "range", "UINT64"]),
        ({"datatype": "INT64", "data": [1, 2**63]}, ["data", "range", "INT64"]),
        ({"datatype": "INT32", "data": [1, 1.5]}, ["data", "1.5"]),
        ({"datatype": "BOOL", "data": [1, 0]}, ["data", "BOOL"]),
        ({"datatype": "BYTES", "data": ["a", 5]}, ["data", "5"]),
        ({"datatype": "FP16", "data": [1, 2]}, ["FP16", "binary"]),
        ({"datatype": "BF16", "data": [1, 2]}, ["BF16", "binary"]),
        ({"datatype": "FP99", "data": [1, 2]}, ["FP99", "FP32"]),
        ({"shape": [-2], "data": [1, 2]}, ["shape", "-2"]),
        ({"shape": [2**64], "data": [1, 2]}, ["shape", "int64"]),
        ({"shape": [2**40, 2**40], "data": [1, 2]}, ["shape", "int64"]),
        ({"shape": [2**40], "data": [1, 2]}, ["--http-max-input-size"]),
        ({"shape": [1] * 70, "data": [1]}, ["shape"]),
        ({"shape": [True], "data": [1]}, ["shape", "bool"]),
        ({"name": 5, "data": [1]}, ["name"]),
    ],
)
def test_a_wrong_input_is_answered_with_its_name_and_what_to_mend(
    members: dict[str, Any], words: list[str]
) -> None:
    text = message({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], **members}]})

    assert all(word in text for word in words), text


def test_data_nested_a_hundred_and_fifty_levels_deep_is_refused() -> None:
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":%b1%b}]}'

    assert "nested" in message(body % (b"[" * 150, b"]" * 150))


def test_the_same_input_twice_is_refused() -> None:
    """SCH-003."""
    item = request(data=[1, 2])["inputs"][0]

    assert "already exists" in message({"inputs": [item, item]})


def test_binary_input_is_a_view_of_the_body() -> None:
    data = np.arange(2, dtype=np.float32)
    text = json.dumps(request(parameters={"binary_data_size": 8})).encode()
    text += b" " * (-len(text) % 8)
    body = memoryview(bytearray(text + data.tobytes()))

    array = (
        decode_request(body, len(text), identity_spec(), 1, LIMITS).request.inputs["INPUT0"].array
    )

    assert array.tolist() == [0, 1]
    assert array.base is not None


def test_binary_tensors_are_taken_in_input_order() -> None:
    body = request(shape=[1], parameters={"binary_data_size": 4})
    body["inputs"].append(
        {"name": "B", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}
    )

    inputs = decode(body, b"\0\0\x80?" + b"\1\0\0\0x").request.inputs

    assert inputs["INPUT0"].array.tolist() == [1.0]
    assert inputs["B"].array.tolist() == [b"x"]


@pytest.mark.parametrize(
    ("size", "tail", "words"),
    [
        (8, b"\0" * 7, ["INPUT0", "7 bytes are left"]),
        (8, b"\0" * 9, ["1 bytes follow", "INPUT0"]),
        (4, b"\0" * 4, ["needs 8 bytes, got 4"]),
        (-1, b"\0" * 8, ["binary_data_size"]),
        ("8", b"\0" * 8, ["binary_data_size"]),
        (True, b"\0", ["binary_data_size"]),
        (2**64, b"\0" * 8, ["INPUT0"]),
    ],
)
def test_wrong_binary_sizes_are_refused(size: Any, tail: bytes, words: list[str]) -> None:
    text = message(request(parameters={"binary_data_size": size}), tail)

    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (b"\1\0\0\0a", ["expected 2", "hold at most 1"]),
        (b"\1\0\0\0a\x63\0\0\0abc", ["element 1 of 2", "99 bytes"]),
        (b"\1\0\0\0a\1\0\0\0b\1\0\0\0c", ["expected 2, got 3"]),
        (b"\1\0\0\0a\1\0\0\0b\0\0", ["length takes 4 bytes, 2 bytes are left"]),
    ],
)
def test_each_mistake_in_bytes_elements_has_its_own_text(tail: bytes, words: list[str]) -> None:
    text = message(request("BYTES", parameters={"binary_data_size": len(tail)}), tail)

    assert all(word in text for word in [*words, "INPUT0", "'m'"]), text


def test_zero_elements_are_a_tensor_too() -> None:
    assert values(decode(request(shape=[0, 3], data=[]))) == []
    assert (
        values(decode(request(shape=[3, 0], parameters={"binary_data_size": 0}), b"")) == [[]] * 3
    )


@pytest.mark.parametrize("text", ["abc", "1.5", "-1", "172", "9" * 30, "", "\u0663", " 5"])
def test_a_wrong_json_length_header_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="171 bytes"):
        parse_header_length(text, 171)


def test_raw_request_fills_the_one_open_dimension_and_the_batch_axis() -> None:
    """SCH-015."""
    decoded = decode(b"\0" * 32, raw=True, dims=(4, -1), max_batch_size=8)

    assert decoded.request.inputs["INPUT0"].shape == (1, 4, 2)
    assert decoded.is_binary_by_default


def test_raw_request_of_strings_is_one_element() -> None:
    """SCH-015."""
    decoded = decode(b"jpeg...", raw=True, datatype="BYTES", dims=(1,))

    assert values(decoded) == [b"jpeg..."]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"inputs": ("INPUT0", "INPUT1")}, ["exactly 1 input", "has 2"]),
        ({"dims": (-1, -1)}, ["one open dimension"]),
        ({"dims": (3, -1)}, ["multiple of 12"]),
        ({"dims": (3,)}, ["12 bytes, got 10", "raw_input"]),
        ({"datatype": "BYTES", "dims": (2,)}, ["shape [1]"]),
    ],
)
def test_raw_request_that_does_not_fit_the_model_is_refused(
    spec: dict[str, Any], words: list[str]
) -> None:
    """SCH-015."""
    text = message(b"0123456789", raw=True, **spec)

    assert all(word in text for word in words), text


def test_request_parameters_go_to_their_fields() -> None:
    body = request(data=[1, 2])
    body["id"] = "r1"
    body["parameters"] = {
        "sequence_id": "s",
        "sequence_start": True,
        "sequence_end": True,
        "priority": 3,
        "timeout": 9,
        "a": "x",
        "b": 1,
        "c": False,
        "d": 0.5,
    }

    got = decode(body).request

    assert (got.id, got.correlation_id, got.priority, got.timeout_us) == ("r1", "s", 3, 9)
    assert (got.sequence_start, got.sequence_end) == (True, True)
    assert got.parameters == {"a": "x", "b": 1, "c": False, "d": 0.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence_id", -1),
        ("sequence_id", True),
        ("sequence_start", 1),
        ("sequence_end", "yes"),
        ("priority", -1),
        ("priority", "high"),
        ("timeout", "1"),
        ("timeout", 1.5),
        ("binary_data_output", "yes"),
        ("triton_x", True),
        ("a", [1]),
        ("a", {}),
        ("a", None),
        ("a", 2**63),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused_by_name(name: str, value: object) -> None:
    body = request(data=[1, 2])
    body["parameters"] = {name: value}

    assert name in message(body)


def test_a_long_correlation_id_is_unsupported() -> None:
    body = request(data=[1, 2])
    body["parameters"] = {"sequence_id": "x" * 129}

    with pytest.raises(UnsupportedError, match="128"):
        decode(body)


@pytest.mark.parametrize("classification", [0, -1, True, "1", 1.5])
def test_classification_must_be_a_positive_integer(classification: object) -> None:
    body = request(data=[1, 2])
    body["outputs"] = [{"name": "OUTPUT0", "parameters": {"classification": classification}}]

    assert "classification" in message(body)


def test_a_region_of_shared_memory_that_nobody_registered_is_not_found() -> None:
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    body = request(data=[1, 2])
    body["outputs"] = [{"name": "OUTPUT0", "parameters": region}]

    for wrong in (request(parameters=region), body):
        with pytest.raises(NotFoundError, match="allow-client-shm"):
            decode(wrong)


def test_json_above_the_limit_is_refused_naming_the_option() -> None:
    body = b'{"inputs":[]' + b" " * LIMIT + b"}"

    assert "--http-max-input-size" in message(body)


def test_every_prefix_of_a_request_is_an_error_and_never_a_crash() -> None:
    text = json.dumps(request("BYTES", data=["\u00e9", "b"])).encode()

    for end in range(len(text)):
        with pytest.raises(ServingError):
            decode(text[:end])


def test_bytes_wire_form_round_trips() -> None:
    array = np.array([b"", b"abc", "\u00e9"], dtype=np.object_)
    raw = serialize_bytes(array)
    body = request("BYTES", shape=(3,), parameters={"binary_data_size": len(raw)})

    assert values(decode(body, raw)) == [b"", b"abc", "\u00e9".encode()]


@pytest.mark.parametrize("member", ['"id":"\\ud800"', '"parameters":{"a":"\\ud800"}'])
def test_half_a_character_is_refused_beside_not_a_number_too(member: str) -> None:
    item = b'{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[NaN]}'

    assert "unpaired surrogate" in message(b'{%s,"inputs":[%s]}' % (member.encode(), item))
