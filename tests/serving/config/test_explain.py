"""What requests must look like, and snippets that really send one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from serving.config.complete import complete
from serving.config.explain import explain
from serving.config.pbtxt import parse

X = 'input { name: "x" data_type: TYPE_FP32 dims: [3] }'
Y = 'output { name: "y" data_type: TYPE_FP32 dims: [2] }'


def explained(text, origins=None):
    config = parse(text).config
    complete(config, name="my model", model_directory=None)
    return explain(config, origins)


@pytest.fixture
def sink():
    """A server that keeps what it is sent and answers one output."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, dict(self.headers), body))
            output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
            answer = json.dumps({"model_name": "m", "outputs": [output]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def run(command):
    done = subprocess.run(command, capture_output=True, timeout=30, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_shapes_carry_the_batch_axis():
    explanation = explained(f"max_batch_size: 8 {X} {Y}")

    (item,) = explanation.inputs
    assert (item.name, item.datatype, item.shape) == ("x", "FP32", (-1, 3))
    assert item.example_shape == (1, 3)
    assert explanation.outputs[0].shape == (-1, 2)
    assert "1 to 8" in explanation.notes[0]


def test_without_batching_shapes_are_exact():
    explanation = explained(f"{X} {Y}")

    assert explanation.inputs[0].shape == (3,)
    assert "no batch dimension" in explanation.notes[0]


@pytest.mark.parametrize(
    ("output", "shape"),
    [("dims: [1]", (-1,)), ("dims: [3]", (-1, 3)), ("dims: [1] reshape { shape: [] }", (-1, 1))],
)
def test_one_value_for_each_row_of_a_tree_model_is_flat(output, shape):
    """FIL-03."""
    told = f'output {{ name: "output__0" data_type: TYPE_FP32 {output} }}'

    explanation = explained(f'backend: "fil" max_batch_size: 8 {told}')

    assert explanation.outputs[0].shape == shape


def test_the_origin_of_an_input_is_told():
    assert explained(X, {"input": "model"}).inputs[0].origin == "model"
    assert explained(X, {"input": "file", "input[0]": "file"}).inputs[0].origin == "file"


def test_the_json_body_has_as_many_elements_as_its_shape_says():
    text = (
        'input { name: "a" data_type: TYPE_INT64 dims: [2, 3] } '
        'input { name: "b" data_type: TYPE_STRING dims: [-1] } '
        'input { name: "c" data_type: TYPE_BOOL dims: [1] optional: true }'
    )

    inputs = explained(text).request()["inputs"]

    assert [(item["name"], item["shape"], len(item["data"])) for item in inputs] == [
        ("a", [2, 3], 6),
        ("b", [1], 1),
    ]
    assert inputs[1]["data"] == ["text"]


def test_types_that_json_may_not_carry_are_pointed_out():
    explanation = explained('input { name: "x" data_type: TYPE_FP16 dims: [1] }')

    assert not explanation.is_json
    assert "binary" in explanation.inputs[0].note


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_snippet_sends_the_json_body(sink):
    url, received = sink
    explanation = explained(f"{X} {Y}")

    answer = run(["bash", "-c", explanation.curl(url, {"X-Key": "a'b"})])

    path, headers, body = received[0]
    assert path == "/v2/models/my%20model/infer"
    assert headers["X-Key"] == "a'b"
    assert json.loads(body) == explanation.request()
    assert json.loads(answer)["outputs"][0]["name"] == "y"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_large_example_is_sent_in_binary_form(sink):
    url, received = sink
    text = (
        'input { name: "image" data_type: TYPE_FP16 dims: [3, 224, 224] } '
        'input { name: "tags" data_type: TYPE_STRING dims: [5] }'
    )

    run(["bash", "-c", explained(text).curl(url)])

    _, headers, body = received[0]
    size = int(headers["Inference-Header-Content-Length"])
    sizes = [item["parameters"]["binary_data_size"] for item in json.loads(body[:size])["inputs"]]
    assert sizes == [3 * 224 * 224 * 2, 20]
    assert len(body) == size + sum(sizes)


def test_the_python_snippet_sends_every_required_input(sink):
    url, received = sink
    text = (
        f"max_batch_size: 4 {X} {Y} "
        'input { name: "t" data_type: TYPE_STRING dims: [1] } '
        'input { name: "h" data_type: TYPE_BF16 dims: [2] }'
    )

    printed = run([sys.executable, "-c", explained(text).python(url)])

    _, headers, body = received[0]
    size = int(headers["Inference-Header-Content-Length"])
    inputs = {item["name"]: item for item in json.loads(body[:size])["inputs"]}
    assert {name: item["shape"] for name, item in inputs.items()} == {
        "x": [1, 3],
        "t": [1, 1],
        "h": [1, 2],
    }
    assert printed == "y [[1. 2.]]\n"


def test_decoupled_and_sequence_models_get_a_note():
    decoupled = explained(f"{X} model_transaction_policy {{ decoupled: true }}")
    sequence = explained(f"{X} max_batch_size: 8 sequence_batching {{ }}")

    assert any("decoupled" in note for note in decoupled.notes)
    assert any("sequence_id" in note for note in sequence.notes)
    assert any("always 1" in note for note in sequence.notes)


def test_a_config_without_inputs_has_an_empty_explanation():
    explanation = explained("")

    assert explanation.inputs == ()
    assert explanation.request() == {"inputs": []}


def test_the_example_of_a_sequence_model_is_a_sequence_of_one_request():
    text = (
        'control_input { name: "ID" '
        "control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }"
    )

    number = explained(f"{X} {Y} sequence_batching {{ direct {{}} }}")
    words = explained(f"{X} {Y} sequence_batching {{ direct {{}} {text} }}")
    iterative = explained(f"{X} {Y} sequence_batching {{ iterative_sequence: true }}")

    flags = {"sequence_start": True, "sequence_end": True}
    assert number.request()["parameters"] == {"sequence_id": 1, **flags}
    assert words.request()["parameters"]["sequence_id"] == "my-sequence"
    assert "sequence_id=1, sequence_start=True, sequence_end=True" in number.python("http://a")
    assert "parameters" not in iterative.request()
    assert any("sequence of its own" in note for note in iterative.notes)
