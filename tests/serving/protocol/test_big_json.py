"""Large JSON is read and written in pieces; what comes out is what the usual way gives."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError
from serving.protocol import big_json
from serving.protocol.json_tensor import array_from_json
from serving.protocol.v2_http import DecodedRequest, DecodeLimits, decode_request, encode_response
from serving.protocol.v2_json import decode_big_infer
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor
from tests.serving.protocol.specs import identity_spec

COUNT = 250_000
"""Elements: enough for some MB of text and many pieces."""
LIMIT = 64 * 1024 * 1024


def body_of(data: str, count: int = COUNT, datatype: str = "FP64", more: str = "") -> bytes:
    head = f'{{"id":"x","inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":[{count}]'
    return f'{head},"data":{data}}}{more}]}}'.encode()


def decoded(body: bytes) -> np.ndarray:
    spec = identity_spec()
    return (
        decode_request(memoryview(body), None, spec, 1, DecodeLimits(LIMIT))
        .request.inputs["INPUT0"]
        .array
    )


def big(text: str) -> big_json.BigArray:
    (array,) = big_json.cut_arrays(memoryview(b'{"data": ' + text.encode() + b"}"))[1]
    return array


def nested(values: list[Any], rng: random.Random) -> str:
    """The values in lists of lists of uneven length, with white space."""
    rows = []
    while values:
        size = rng.randrange(1, 700)
        row, values = values[:size], values[size:]
        rows.append([row] if rng.random() < 0.3 else row)
    return json.dumps(rows, separators=(" ,\n", ":"))


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT32", "UINT64", "BOOL"])
@pytest.mark.parametrize("shape_of_text", ["flat", "spaced", "nested"])
def test_numbers_are_read_as_in_small_bodies(datatype, shape_of_text):
    rng = random.Random(7)
    draw = {"F": lambda: rng.uniform(-1e30, 1e30), "B": lambda: rng.random() < 0.5}
    count = COUNT if datatype == "BOOL" else COUNT // 2  # a large body in any case
    values = [draw.get(datatype[0], lambda: rng.randrange(2**31))() for _ in range(count)]
    text = json.dumps(values, separators=(",", ":"))
    if shape_of_text == "spaced":
        text = json.dumps(values, indent=1)
    elif shape_of_text == "nested":
        text = nested(values, rng)
    body = body_of(text, count, datatype)
    assert decode_big_infer(memoryview(body)) is not None

    array = decoded(body)

    np.testing.assert_array_equal(array, np.array(values, BY_NAME[datatype].dtype))


def test_several_inputs_keep_their_own_values():
    first = json.dumps(list(range(COUNT)))
    second = json.dumps(list(range(COUNT, 2 * COUNT)))
    small = ',{"name":"C","datatype":"INT32","shape":[2],"data":[8, 9]}'
    last = f',{{"name":"D","datatype":"INT32","shape":[{COUNT}],"data":{second}}}'
    body = body_of(first, datatype="INT32", more=small + last)

    parts = decode_big_infer(memoryview(body))

    assert parts is not None
    assert [item.name for item in parts.header.inputs] == ["INPUT0", "C", "D"]
    assert sorted(parts.arrays) == [0, 2]
    kind = BY_NAME["INT32"]
    assert array_from_json(parts.arrays[2], kind, (COUNT,), "D")[0] == COUNT


FAULTY = {
    "a value is missing": ("7,8", "7,,8"),
    "the end is missing": ("7,8", "7,[8"),
    "a bracket before a comma": ("7,8", "7[,8]"),
    "an empty list after a value": ("7,8", "7[],8"),
    "a comma before a bracket": ("7,8", "[7,]8"),
    "two values without a comma": ("7,8", "7 8"),
    "lists without a comma": ("7,8", "[7][8]"),
    "a word": ("7,8", "7,seven"),
    "a null": ("7,8", "7,null"),
    "a string": ("7,8", '7,"8"'),
    "an object": ("7,8", "7,{}"),
    "too large": ("7,8", "7,99999999999999"),
    "a boolean": ("7,8", "7,true"),
    "a trailing comma": ("7,8]", "7,8,]"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_told_as_in_a_small_body(fault):
    right, wrong = FAULTY[fault]
    filler = "1," * COUNT
    assert decoded(body_of(f"[{filler}7,8]", COUNT + 2, "INT32"))[-1] == 8

    with pytest.raises(InvalidArgumentError) as told:
        decoded(body_of(f"[{filler}7,8]".replace(right, wrong), COUNT + 2, "INT32"))

    assert "arse" in told.value.message  # Unable to parse ..., or failed to parse ...


def test_empty_lists_are_no_elements():
    text = "[[]," + "1," * COUNT + "[],2]"

    assert len(decoded(body_of(text, COUNT + 1, "INT32"))) == COUNT + 1


def test_not_a_number_goes_the_lenient_way():
    array = decoded(body_of("[" + "1.5," * COUNT + "NaN]", COUNT + 1, "FP32"))

    assert np.isnan(array[-1])
    assert array[0] == 1.5


def test_a_wrong_count_is_named():
    with pytest.raises(InvalidArgumentError, match=f"needs 3 elements, got {COUNT}"):
        decoded(body_of(json.dumps([1] * COUNT), 3, "INT32"))


def test_the_text_data_in_a_string_is_no_array():
    values = json.dumps(['x"data":[1', '"data":', "]"] + ["a" * 50] * 40_000)
    body = body_of(values, 40_003, "BYTES")

    assert list(decoded(body)[:3]) == [b'x"data":[1', b'"data":', b"]"]


def test_no_call_of_a_library_sees_a_large_piece():
    sizes = []

    def decode(piece: bytes) -> list[Any]:
        sizes.append(len(piece))
        return list(json.loads(piece))

    array = big(json.dumps(list(range(COUNT)))).convert(decode, np.dtype(np.int64))

    np.testing.assert_array_equal(array, np.arange(COUNT))
    assert max(sizes) < 70_000


@pytest.mark.parametrize(
    ("datatype", "special"), [("FP32", np.nan), ("FP64", np.inf), ("INT16", -3), ("BOOL", True)]
)
def test_large_outputs_are_written_as_small_ones_are(datatype, special):
    kind = BY_NAME[datatype]
    values = (np.arange(300_000) % 100).astype(kind.dtype)
    values[200_000] = special
    output = OutputTensor("OUTPUT0", kind, (300, 1000), values.reshape(300, 1000))
    other = OutputTensor("B", BY_NAME["INT32"], (1,), np.ones(1, np.int32))
    request = DecodedRequest(InferenceRequest("m", 1))
    response = InferenceResponse("m", 1, "r", [output, other, output])

    encoded = encode_response(request, response, identity_spec(), lambda name: [])

    assert max(map(len, encoded.parts)) < 300_000
    answer = json.loads(b"".join(encoded.parts))
    assert [item["name"] for item in answer["outputs"]] == ["OUTPUT0", "B", "OUTPUT0"]
    for item in (answer["outputs"][0], answer["outputs"][2]):
        np.testing.assert_array_equal(np.array(item["data"]).astype(kind.dtype), values)


def test_many_small_arrays_cost_no_more_than_their_size():
    """A fuzz found a minute for what now takes a tenth of a second."""
    body = b'{"inputs":[' + b",".join([b'{"data":[1]}'] * 50_000) + b"]}"
    start = time.process_time()

    text, arrays = big_json.cut_arrays(memoryview(body))

    assert (text, arrays) == (body, [])
    assert time.process_time() - start < 5
