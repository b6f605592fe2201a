"""static/js/kserve.js speaks KServe v2 with binary tensors; numpy is the judge of the bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from tests.console.catalog.javascript import Modules, module_page

pytestmark = pytest.mark.browser

MODULE = "kserve.js"


@pytest.fixture(scope="module")
def modules() -> Iterator[Modules]:
    with module_page() as modules:
        yield modules


@pytest.mark.parametrize(
    ("datatype", "dtype", "values"),
    [
        ("FP32", np.float32, [0.5, -1.25, 3e10]),
        ("FP64", np.float64, [0.1, 1e300]),
        ("FP16", np.float16, [0.5, -2.0, 65504.0, 6.0e-8, 1e9, 0.1, 2049.0]),
        ("INT8", np.int8, [-128, 0, 127]),
        ("UINT8", np.uint8, [0, 255]),
        ("INT16", np.int16, [-32768, 5]),
        ("INT32", np.int32, [-(2**31), 7]),
        ("UINT32", np.uint32, [2**32 - 1]),
        ("INT64", np.int64, [-5, 2**40]),
        ("UINT64", np.uint64, [2**53 - 1]),
        ("BOOL", np.bool_, [True, False, True]),
    ],
)
def test_packs_numbers_as_little_endian(
    modules: Modules, datatype: str, dtype: type, values: list[float]
) -> None:
    packed = modules.run_bytes(MODULE, "m.packTensor(given[0], given[1])", [datatype, values])

    with np.errstate(over="ignore"):
        expected: np.ndarray = np.array(values).astype(dtype)
    assert packed == expected.astype(expected.dtype.newbyteorder("<")).tobytes()


def test_every_half_float_comes_back_as_it_was(modules: Modules) -> None:
    failures = modules.run(
        MODULE,
        """(() => { let wrong = 0;
            for (let bits = 0; bits < 0x7c00; bits += 1)
                if (m.toHalf(m.fromHalf(bits)) !== bits) wrong += 1;
            return wrong; })()""",
    )

    assert failures == 0


def test_brain_floats_round_to_nearest(modules: Modules) -> None:
    packed = modules.run_bytes(MODULE, "m.packTensor('BF16', given)", [1.0, 1.00390625, 3.14159])

    import ml_dtypes

    expected = np.array([1.0, 1.00390625, 3.14159], np.float32).astype(ml_dtypes.bfloat16)
    assert packed == expected.tobytes()


def test_text_is_packed_with_its_length_in_front(modules: Modules) -> None:
    packed = modules.run_bytes(MODULE, "m.packTensor('BYTES', given)", ["é", ""])

    assert packed == struct.pack("<I", 2) + "é".encode() + struct.pack("<I", 0)


def test_a_request_has_json_first_and_then_every_binary_input_in_order(modules: Modules) -> None:
    request = """{inputs: [
        {name: "a", datatype: "FP32", shape: [2], data: Float32Array.of(1, 2)},
        {name: "b", datatype: "INT32", shape: [1], data: [7]},
        {name: "c", datatype: "BYTES", shape: [1], data: ["x"], binary: true}],
        outputs: [{name: "y", classification: 3}, {name: "z"}]}"""

    headers = modules.run(MODULE, f"m.encodeRequest({request}).headers")
    body = modules.run_bytes(MODULE, f"m.encodeRequest({request}).body")

    length = int(headers["Inference-Header-Content-Length"])
    header = json.loads(body[:length])
    assert header["inputs"] == [
        {"name": "a", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
        {"name": "b", "datatype": "INT32", "shape": [1], "data": [7]},
        {"name": "c", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
    ]
    assert header["outputs"] == [
        {"name": "y", "parameters": {"classification": 3, "binary_data": False}},
        {"name": "z", "parameters": {"binary_data": True}},
    ]
    assert body[length:] == struct.pack("<2f", 1, 2) + struct.pack("<I", 1) + b"x"


def test_a_plain_request_is_plain_json(modules: Modules) -> None:
    encoded = modules.run(
        MODULE,
        """(() => { const {headers, body} = m.encodeRequest({inputs: [
            {name: "a", datatype: "INT32", shape: [1], data: [7]}]});
            return {headers, body: JSON.parse(new TextDecoder().decode(body))}; })()""",
    )

    assert encoded["headers"] == {"Content-Type": "application/json"}
    assert encoded["body"]["inputs"][0]["data"] == [7]
    assert encoded["body"]["parameters"] == {"binary_data_output": True}


def test_reads_binary_and_json_outputs_of_one_answer(modules: Modules) -> None:
    header = json.dumps(
        {
            "model_name": "m",
            "outputs": [
                {"name": "j", "datatype": "INT32", "shape": [1, 2], "data": [[1, 2]]},
                {
                    "name": "b",
                    "datatype": "FP32",
                    "shape": [2],
                    "parameters": {"binary_data_size": 8},
                },
                {
                    "name": "t",
                    "datatype": "BYTES",
                    "shape": [1],
                    "parameters": {"binary_data_size": 7},
                },
            ],
        }
    ).encode()
    body = header + struct.pack("<2f", 0.5, 1.5) + struct.pack("<I", 3) + b"abc"

    outputs = modules.run(
        MODULE,
        """m.decodeResponse(Uint8Array.from(given[0]).buffer, String(given[1])).outputs
            .map((output) => [output.name, Array.from(output.data)])""",
        [list(body), len(header)],
    )

    assert outputs == [["j", [1, 2]], ["b", [0.5, 1.5]], ["t", ["abc"]]]


def test_an_answer_that_is_cut_off_is_refused(modules: Modules) -> None:
    message = modules.run(
        MODULE,
        """(() => { try { m.unpackTensor("BYTES", Uint8Array.of(9, 0, 0, 0, 65)); }
            catch (problem) { return problem.message; } })()""",
    )

    assert message == "A BYTES element ends behind its tensor."


def test_a_stream_asks_with_flat_values_by_name(modules: Modules) -> None:
    body = modules.run(
        MODULE,
        """m.streamBody({
            inputs: [{ name: "IN", shape: [2, 1], data: [[1], [2]] },
                     { name: "BIG", shape: [1], data: BigInt64Array.of(7n) }],
            parameters: { sequence_id: 5 } })""",
    )

    assert json.loads(body) == {"IN": [1, 2], "BIG": [7], "parameters": {"sequence_id": 5}}


STREAM = """(async () => {
    const parts = given.map((text) => new TextEncoder().encode(text));
    const stream = new ReadableStream({ pull(to) {
        const next = parts.shift();
        next ? to.enqueue(next) : to.close();
    } });
    window.fetch = async () => new Response(stream, { status: 200 });
    const seen = [];
    try {
        const onAnswer = ({ json }) => seen.push(json.OUT);
        const end = await m.inferStream("/x", { inputs: [] }, { onAnswer });
        return [seen, end.count, ""];
    } catch (problem) {
        return [seen, null, problem.message];
    }
})()"""


def test_answers_of_a_stream_come_one_by_one_wherever_the_network_cuts_them(
    modules: Modules,
) -> None:
    parts = ['data: {"OU', 'T":"ä"}\n', '\ndata: {"OUT":2}\n\ndata: {"OUT":3}']

    assert modules.run(MODULE, STREAM, parts) == [["ä", 2, 3], 3, ""]


def test_an_error_in_a_stream_ends_it_with_its_words(modules: Modules) -> None:
    parts = ['data: {"OUT":1}\n\ndata: {"error":"no more memory"}\n\n']

    assert modules.run(MODULE, STREAM, parts) == [[1], None, "no more memory"]
