"""Cases of the data plane from real reports: types, shapes, bodies, classification (C29 to C41).

One server for all; after each case it is live and another model answers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

from serving.options import FrontendOptions, ServerOptions
from serving.server_thread import ServerThread

LENGTH = "Inference-Header-Content-Length"
CONFIGS = {
    "half": ("FP16", "-1", 0),
    "brain": ("BF16", "-1", 0),
    "words": ("STRING", "1", 4),
    "four": ("FP32", "4", 8),
    "open": ("FP32", "-1", 0),
    "scores": ("FP32", "4", 8),
    "names": ("STRING", "4", 0),
}
TWO = """
backend: "identity" max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 2 ] }
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("models")
    for name, (kind, dims, batch) in CONFIGS.items():
        labels = 'label_filename: "labels.txt"' if name == "scores" else ""
        batching = "dynamic_batching { }" if batch == 8 else ""
        _write(
            root / name,
            f'backend: "identity" max_batch_size: {batch} {batching}\n'
            f'input {{ name: "INPUT0" data_type: TYPE_{kind} dims: [ {dims} ] }}\n'
            f'output {{ name: "OUTPUT0" data_type: TYPE_{kind} dims: [ {dims} ] {labels} }}\n',
        )
    (root / "scores" / "labels.txt").write_text("one\ntwo\nthree\n")
    _write(root / "two", TWO)
    doors = FrontendOptions(http_port=0, allow_grpc=False, allow_metrics=False)
    thread = ServerThread(ServerOptions((root,)), doors)
    thread.start(30)
    yield f"http://127.0.0.1:{thread.ports.http}"
    thread.stop()


def _write(model: Path, config: str) -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=20) as client:
        yield client
        assert client.get("/v2/health/live").status_code == 200
        assert infer(client, "open", FP32 | {"data": [1, 2]}).status_code == 200


FP32: dict[str, Any] = {"name": "INPUT0", "datatype": "FP32", "shape": [2]}


def infer(
    client: httpx.Client, model: str, *inputs: dict[str, Any], raw: bytes = b"", **more: Any
) -> httpx.Response:
    """JSON, and behind it the bytes of binary tensors."""
    text = json.dumps({"inputs": list(inputs), **more}).encode()
    headers = {LENGTH: str(len(text))} if raw else {}
    return client.post(f"/v2/models/{model}/infer", content=text + raw, headers=headers)


def error_of(answer: httpx.Response) -> str:
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


@pytest.mark.parametrize(("model", "dtype"), [("half", np.float16), ("brain", ml_dtypes.bfloat16)])
def test_c29_half_floats_go_in_binary_only_and_bit_by_bit(
    client: httpx.Client, model: str, dtype: Any
) -> None:
    kind = CONFIGS[model][0]
    sent = np.array([1.5, -0.0, np.nan, np.inf, 1e-7], np.float32).astype(dtype).tobytes()
    tensor = {"name": "INPUT0", "datatype": kind, "shape": [5]}
    binary = tensor | {"parameters": {"binary_data_size": 10}}

    assert "binary" in error_of(infer(client, model, tensor | {"data": [1.0] * 5}))
    assert "binary" in error_of(infer(client, model, binary, raw=sent))
    answer = infer(client, model, binary, raw=sent, parameters={"binary_data_output": True})

    assert answer.content[int(answer.headers[LENGTH]) :] == sent


@pytest.mark.parametrize("data", [["a", "b"], [["a"], ["b"]], [["a", "b"]]])
def test_c30_strings_may_be_nested_in_any_way(client: httpx.Client, data: list[Any]) -> None:
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [2, 1], "data": data}

    assert infer(client, "words", tensor).json()["outputs"][0]["data"] == ["a", "b"]


def test_c30_odd_strings_come_back_in_json_and_binary(client: httpx.Client) -> None:
    strings = ["", "x" * 2**20, "a\0b", "\U0001f600"]
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [4, 1], "data": strings}
    raw = b"".join(struct.pack("<I", len(s.encode())) + s.encode() for s in strings)
    size = {"parameters": {"binary_data_size": len(raw)}}
    binary = {"name": "INPUT0", "datatype": "BYTES", "shape": [4, 1], **size}
    both = {"parameters": {"binary_data_output": True}}

    assert infer(client, "words", tensor).json()["outputs"][0]["data"] == strings
    answer = infer(client, "words", binary, raw=raw, **both)
    assert answer.content[int(answer.headers[LENGTH]) :] == raw


def test_c30_bytes_that_are_no_text_are_refused_as_json(client: httpx.Client) -> None:
    raw = b"\2\0\0\0\xff\xfe"
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1]}

    answer = infer(client, "words", tensor | {"parameters": {"binary_data_size": 6}}, raw=raw)

    assert "binary" in error_of(answer)


@pytest.mark.parametrize(
    ("rows", "raw", "words"),
    [
        (1, b"\x0a\0\0\0abc", ["10 bytes", "3"]),
        (1, b"\1\0", ["expected 1", "2 bytes"]),
        (2, b"\1\0\0\0a\1\0\0\0b\1\0\0\0c", ["expected 2", "got 3"]),
        (2, b"\1\0\0\0a", ["expected 2", "at most 1"]),
        (1, b"hello, world", ["bytes"]),
    ],
)
def test_c31_malformed_elements_say_what_was_expected(
    client: httpx.Client, rows: int, raw: bytes, words: list[str]
) -> None:
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [rows, 1]}

    text = error_of(
        infer(client, "words", tensor | {"parameters": {"binary_data_size": len(raw)}}, raw=raw)
    )

    assert all(word in text for word in words), text


def test_c33_a_wrong_size_never_disturbs_the_request_beside_it(client: httpx.Client) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4]}

    def good(number: int) -> list[float]:
        answer = infer(client, "four", tensor | {"data": [number] * 4})
        return list(answer.json()["outputs"][0]["data"])

    def bad(number: int) -> int:
        if number % 2:
            count = 3 if number % 4 == 1 else 5
            return infer(client, "four", tensor | {"data": [9.0] * count}).status_code
        raw = bytes(12 if number % 4 else 20)
        sized = tensor | {"parameters": {"binary_data_size": len(raw)}}
        return infer(client, "four", sized, raw=raw).status_code

    with ThreadPoolExecutor(8) as pool:
        wrong = [pool.submit(bad, number) for number in range(100)]
        right = [pool.submit(good, number) for number in range(100)]

        assert {item.result() for item in wrong} == {400}
        assert [item.result() for item in right] == [[float(n)] * 4 for n in range(100)]


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", "{", "{}", '{"inputs": {}}', '{"inputs": "x"}', '{"inputs": [7]}', "null"),
        *(
            json.dumps({"inputs": [{**FP32, "data": [1, 2], **changes}]})
            for changes in (
                *({"shape": "2"}, {"shape": 1.5}, {"shape": [-2]}, {"shape": [2**70]}),
                *({"datatype": "STRING"}, {"datatype": None}, {"data": None}, {"data": "ab"}),
                *({"data": {}}, {"shape": [2.0]}, {"name": None}, {"shape": [True, 2]}),
            )
        ),
    ],
)
def test_c34_malformed_bodies_are_the_clients_mistake(client: httpx.Client, body: str) -> None:
    error_of(client.post("/v2/models/open/infer", content=body))


def test_c34_fifty_levels_are_read_and_many_more_refused(client: httpx.Client) -> None:
    def nested(depth: int) -> httpx.Response:
        data = "[" * depth + "1" + "]" * depth
        tensor = json.dumps(FP32 | {"shape": [1], "data": 0}).replace(
            '"data": 0', f'"data": {data}'
        )
        return client.post("/v2/models/open/infer", content=f'{{"inputs": [{tensor}]}}')

    assert nested(50).status_code == 200
    error_of(nested(120))


def test_c36_names_and_types(client: httpx.Client) -> None:
    good = FP32 | {"data": [1, 2]}
    wrong_type = good | {"datatype": "INT32"}

    assert "OTHER" in error_of(infer(client, "open", good | {"name": "OTHER"}))
    assert "INPUT1" in error_of(infer(client, "two", good | {"shape": [1, 2]}))
    text = error_of(infer(client, "open", wrong_type))
    assert "INT32" in text
    assert "FP32" in text
    assert "OTHER" in error_of(infer(client, "open", good, outputs=[{"name": "OTHER"}]))
    twice = [{"name": "OUTPUT0"}] * 2
    assert "OUTPUT0" in error_of(infer(client, "open", good, outputs=twice))
    both = (good | {"shape": [1, 2]}, good | {"shape": [1, 2], "name": "INPUT1"})
    answer = infer(client, "two", *both)
    assert [output["name"] for output in answer.json()["outputs"]] == ["OUTPUT0", "OUTPUT1"]


def test_c37_json_and_binary_mix_in_the_order_of_the_inputs(client: httpx.Client) -> None:
    first = FP32 | {"shape": [1, 2], "parameters": {"binary_data_size": 8}}
    second = FP32 | {"name": "INPUT1", "shape": [1, 2], "data": [3, 4]}
    raw = struct.pack("<2f", 1, 2)
    outputs = [
        {"name": "OUTPUT0", "parameters": {"binary_data": True}},
        {"name": "OUTPUT1", "parameters": {"binary_data": False}},
    ]
    wanted = {"outputs": outputs, "parameters": {"binary_data_output": True}}

    for inputs in ([first, second], [second, first]):
        answer = infer(client, "two", *inputs, raw=raw, **wanted)
        size = int(answer.headers[LENGTH])
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.content[size:] == raw
        assert json.loads(answer.content[:size])["outputs"][1]["data"] == [3.0, 4.0]
    listed = infer(client, "two", first, second, raw=raw, **wanted | {"outputs": outputs[1:]})
    assert LENGTH not in listed.headers  # the default is for outputs that nobody lists
    for wrong in (raw + b"x", raw[:-1]):
        error_of(infer(client, "two", first, second, raw=wrong))


@pytest.mark.parametrize("length", ["-1", "abc", "99999999999"])
def test_c37_a_wrong_length_header_is_refused(client: httpx.Client, length: str) -> None:
    error_of(client.post("/v2/models/open/infer", content=b"{}", headers={LENGTH: length}))


def test_c37_a_raw_body_is_the_only_input(client: httpx.Client) -> None:
    raw = struct.pack("<4f", 1, 2, 3, 4)

    answer = client.post("/v2/models/open/infer", content=raw, headers={LENGTH: "0"})
    other = client.post("/v2/models/two/infer", content=raw, headers={LENGTH: "0"})

    size = int(answer.headers[LENGTH])
    assert json.loads(answer.content[:size])["outputs"][0]["shape"] == [4]
    assert answer.content[size:] == raw
    assert "2" in error_of(other)


def test_c41_classes_come_sorted_with_their_labels(client: httpx.Client) -> None:
    def classes(rows: list[list[float]], count: int) -> Any:
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [len(rows), 4], "data": rows}
        outputs = [{"name": "OUTPUT0", "parameters": {"classification": count}}]
        return infer(client, "scores", tensor, outputs=outputs).json()["outputs"][0]

    one = classes([[1, 5, 10, 4]], 2)
    assert (one["datatype"], one["shape"]) == ("BYTES", [1, 2])
    assert one["data"] == ["10.000000:2:three", "5.000000:1:two"]
    assert classes([[1, 5, 10, 4]] * 3, 2)["shape"] == [3, 2]
    assert len(classes([[1, 5, 10, 4]], 9)["data"]) == 4
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [4], "data": ["a"] * 4}
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": 1}}]
    assert "BYTES" in error_of(infer(client, "names", tensor, outputs=outputs))
