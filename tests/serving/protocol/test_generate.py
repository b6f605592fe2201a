"""The generate extension's flat objects."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from serving.datatypes import BY_DTYPE
from serving.errors import InvalidArgumentError
from serving.protocol.generate import decode_request, encode_response
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor
from tests.serving.protocol.specs import identity_spec


def decode(body: Any, **spec: Any) -> InferenceRequest:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode_request(memoryview(text), identity_spec(**spec), 1)


def encode(array: Any, **response: Any) -> str:
    tensor = OutputTensor("OUT", BY_DTYPE[array.dtype], array.shape, array)
    return encode_response(InferenceResponse("m", 2, outputs=[tensor], **response)).decode()


@pytest.mark.parametrize(
    ("value", "spec", "shape"),
    [
        (1.5, {"dims": (1,)}, (1,)),
        ([1, 2, 3], {}, (3,)),
        ([[1, 2], [3, 4]], {"dims": (-1, 2)}, (2, 2)),
        (1, {"max_batch_size": 4}, (1, 1)),
        ([1, 2], {"max_batch_size": 4, "dims": (2,)}, (1, 2)),
    ],
)
def test_scalars_and_arrays_take_the_shape_of_the_model(
    value: Any, spec: dict[str, Any], shape: tuple[int, ...]
) -> None:
    assert decode({"INPUT0": value}, **spec).inputs["INPUT0"].shape == shape


def test_everything_else_is_a_parameter_also_inside_parameters() -> None:
    request = decode(
        {"id": "7", "INPUT0": 1, "a": "x", "parameters": {"b": True, "c": 1.5, "priority": 2}}
    )

    assert (request.id, request.priority) == ("7", 2)
    assert request.parameters == {"id": "7", "a": "x", "b": True, "c": 1.5}


def test_an_input_may_stand_inside_parameters() -> None:
    assert decode({"parameters": {"INPUT0": [4]}}).inputs["INPUT0"].array.tolist() == [4]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "byte 0"),
        (b"{", "byte 1"),
        (b"[]", "JSON object"),
        ({"INPUT0": "a"}, "data"),
        ({"INPUT0": None}, "data"),
        ({"INPUT0": {"a": 1}}, "data"),
        ({"zz": {"a": 1}}, "zz.*string.*int.*bool"),
        ({"parameters": {"zz": [1]}}, "zz"),
        (b'{"INPUT0":1,"INPUT0":2}', "given twice"),
        ({"triton_x": 1}, "triton_x"),
    ],
)
def test_mistakes_are_refused_by_name(body: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        decode(body)


@pytest.mark.parametrize(("dims", "words"), [((-1, -1), "one open"), ((3, -1), "multiple of 3")])
def test_shapes_that_cannot_be_deduced_are_refused(dims: tuple[int, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        decode({"INPUT0": [1, 2]}, dims=dims)


def test_one_element_goes_out_as_a_scalar_and_more_as_a_flat_array() -> None:
    assert json.loads(encode(np.array([[5]]), id="r", parameters={"p": 1})) == {
        "p": 1,
        "id": "r",
        "model_name": "m",
        "model_version": "2",
        "OUT": 5,
    }
    assert json.loads(encode(np.array([[1], [2]])))["OUT"] == [1, 2]
    assert json.loads(encode(np.array([b"hi"], dtype=np.object_)))["OUT"] == "hi"
    assert '"OUT":NaN' in encode(np.array([np.nan], dtype=np.float32))
