"""What goes back over HTTP: JSON, binary tensors, classification, compression."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from serving.datatypes import BY_DTYPE, BY_NAME
from serving.errors import ErrorCode, InvalidArgumentError, UnsupportedError
from serving.protocol.classification import classify
from serving.protocol.compression import choose_coding, compress, decompress
from serving.protocol.status import grpc_status, http_status
from serving.protocol.v2_http import DecodedRequest, EncodedResponse, encode_response
from serving.request import InferenceRequest, RequestedOutput
from serving.response import InferenceResponse, OutputTensor
from tests.serving.protocol.specs import identity_spec


def tensor(array: Any, name: str = "OUTPUT0") -> OutputTensor:
    array = np.asarray(array)
    return OutputTensor(name, BY_DTYPE[array.dtype], array.shape, array)


def encode(
    output: OutputTensor,
    *requested: RequestedOutput,
    is_binary: bool = False,
    labels: tuple[str, ...] = (),
    **response: Any,
) -> EncodedResponse:
    decoded = DecodedRequest(InferenceRequest("m", requested_outputs=list(requested)), is_binary)
    answer = InferenceResponse("m", 3, outputs=[output], **response)
    return encode_response(decoded, answer, identity_spec(), lambda name: labels)


def text(encoded: EncodedResponse) -> str:
    return bytes(encoded.parts[0]).decode()


def test_json_response_is_flat_and_complete() -> None:
    encoded = encode(
        tensor(np.array([[1, 2]], dtype=np.int64)), id="r", parameters={"p": 1, "q": True}
    )

    assert json.loads(text(encoded)) == {
        "id": "r",
        "model_name": "m",
        "model_version": "3",
        "parameters": {"p": 1, "q": True},
        "outputs": [{"name": "OUTPUT0", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}],
    }


def test_empty_id_and_parameters_are_left_out() -> None:
    assert list(json.loads(text(encode(tensor(np.zeros(1)))))) == [
        "model_name",
        "model_version",
        "outputs",
    ]


def test_special_floats_go_out_as_bare_tokens() -> None:
    array = np.array([np.nan, np.inf, -np.inf, 1.5], dtype=np.float32)

    assert '"data":[NaN,Infinity,-Infinity,1.5]' in text(encode(tensor(array)))


def test_strings_go_out_as_text_and_other_bytes_are_refused() -> None:
    good = tensor(np.array([b"\xc3\xa9", "b"], dtype=np.object_))
    bad = tensor(np.array([b"\xff"], dtype=np.object_))

    assert json.loads(text(encode(good)))["outputs"][0]["data"] == ["\u00e9", "b"]
    with pytest.raises(InvalidArgumentError, match="binary_data"):
        encode(bad)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_floats_need_binary(dtype: Any) -> None:
    output = tensor(np.ones(2, dtype=dtype))

    with pytest.raises(InvalidArgumentError, match="binary_data"):
        encode(output)
    assert len(encode(output, is_binary=True).parts[1]) == 4


def test_binary_and_json_outputs_mix() -> None:
    output = tensor(np.arange(2, dtype=np.int16))

    encoded = encode(output, RequestedOutput("OUTPUT0", binary=True))

    assert encoded.is_binary
    assert encoded.json_size == len(encoded.parts[0])
    assert json.loads(text(encoded))["outputs"][0]["parameters"] == {"binary_data_size": 4}
    assert bytes(encoded.parts[1]) == b"\0\0\1\0"


def test_an_output_that_asks_for_json_overrides_the_binary_default() -> None:
    encoded = encode(tensor(np.zeros(1)), RequestedOutput("OUTPUT0", binary=False), is_binary=True)

    assert not encoded.is_binary


@pytest.mark.parametrize("shape", [(0,), (), (2, 0), (20000,)])
def test_binary_output_of_any_size_carries_its_bytes(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype=np.float32)

    assert bytes(encode(tensor(array), is_binary=True).parts[1]) == array.tobytes()


def test_classification_sorts_descending_with_ties_by_index() -> None:
    output = tensor(np.array([0.1, 0.9, 0.9, 0.95], dtype=np.float32))

    result = classify(output, 3, ["a", "b", ""], has_batch_axis=False)

    assert result.shape == (3,)
    assert result.array.tolist() == [b"0.950000:3", b"0.900000:1:b", b"0.900000:2"]


def test_classification_is_per_row_and_clipped() -> None:
    output = tensor(np.array([[1, 2], [4, 3]], dtype=np.uint8))

    result = classify(output, 9, [], has_batch_axis=True)

    assert result.array.tolist() == [[b"2:1", b"1:0"], [b"4:0", b"3:1"]]


@pytest.mark.parametrize("name", ["BOOL", "BYTES", "FP16", "BF16"])
def test_other_types_cannot_be_classified(name: str) -> None:
    array = np.zeros(2, dtype=BY_NAME[name].dtype)
    output = OutputTensor("OUTPUT0", BY_NAME[name], (2,), array)

    with pytest.raises(InvalidArgumentError, match=name):
        classify(output, 1, [], has_batch_axis=False)


def test_classification_of_no_elements_is_empty() -> None:
    assert classify(tensor(np.zeros((0, 4))), 2, [], has_batch_axis=True).shape == (0, 2)


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.9", "deflate"),
        ("gzip;q=0", ""),
        ("identity;q=1, gzip;q=0.5", ""),
        ("br", ""),
        ("br, GZIP ; q=0.1", "gzip"),
        ("gzip;q=x", ""),
        ("gzip;q=2", ""),
        ("", ""),
    ],
)
def test_the_heaviest_known_coding_wins(accept: str, coding: str) -> None:
    assert choose_coding(accept) == coding


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compression_round_trips(coding: str) -> None:
    body = compress([b"abc" * 100, memoryview(b"def")], coding)

    assert decompress(memoryview(body), coding, 1000) == b"abc" * 100 + b"def"


def test_a_body_that_inflates_beyond_the_limit_is_refused() -> None:
    bomb = memoryview(gzip.compress(b"\0" * 100_000))

    with pytest.raises(InvalidArgumentError, match="more than 1000 bytes"):
        decompress(bomb, "gzip", 1000)
    assert len(decompress(bomb, "gzip", 100_000)) == 100_000


def test_broken_and_unknown_codings_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="truncated"):
        decompress(memoryview(gzip.compress(b"abc")[:-3]), "gzip", 1000)
    with pytest.raises(InvalidArgumentError, match="not valid deflate"):
        decompress(memoryview(b"no stream"), "deflate", 1000)
    with pytest.raises(UnsupportedError, match="gzip, deflate"):
        decompress(memoryview(b""), "br", 1000)


def test_a_gzip_body_of_two_members_is_read_to_its_end() -> None:
    body = gzip.compress(b"a") + gzip.compress(b"b")

    assert decompress(memoryview(body), "gzip", 10) == b"ab"
    assert decompress(memoryview(zlib.compress(b"x")), "deflate", 10) == b"x"


def test_every_code_has_both_statuses() -> None:
    assert [http_status(code) for code in ErrorCode] == [400, 500, 404, 400, 503, 501, 400, 400]
    assert {grpc_status(code).name for code in ErrorCode} == {
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "UNAVAILABLE",
        "UNIMPLEMENTED",
        "ALREADY_EXISTS",
        "CANCELLED",
    }
