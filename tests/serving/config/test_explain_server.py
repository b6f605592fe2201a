"""The snippets of the explanation, sent to a real server."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys

import pytest

from serving.config.check import check_model
from serving.config.explain import explain
from serving.options import FrontendOptions, ServerOptions
from serving.server_thread import ServerThread

CONFIGS = {
    "small": 'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [3] } '
    'output { name: "y" data_type: TYPE_FP32 dims: [3] }',
    "text": 'input { name: "x" data_type: TYPE_STRING dims: [2] } '
    'output { name: "y" data_type: TYPE_STRING dims: [2] }',
    "sequence": 'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [3] } '
    'output { name: "y" data_type: TYPE_FP32 dims: [3] } sequence_batching { direct {} }',
    "large": 'max_batch_size: 4 input { name: "x" data_type: TYPE_FP16 dims: [3, 64, 64] } '
    'output { name: "y" data_type: TYPE_FP16 dims: [3, 64, 64] }',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, text in CONFIGS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(f'backend: "identity" {text}')
    ports = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)
    thread = ServerThread(ServerOptions((root,)), ports)
    thread.start(timeout_s=30)
    yield root, f"http://127.0.0.1:{thread.ports.http}"
    thread.stop()


def run(command):
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def explanation_of(root, name):
    check = check_model(root / name)
    return explain(check.effective, check.origins)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("name", ["small", "text", "sequence"])
def test_the_server_answers_the_curl_snippet(server, name):
    root, url = server
    explanation = explanation_of(root, name)

    answer = json.loads(run(["bash", "-c", explanation.curl(url)]))

    (output,) = answer["outputs"]
    assert output["name"] == "y"
    assert output["data"] == explanation.request()["inputs"][0]["data"]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_server_answers_the_python_snippet(server, name):
    root, url = server

    printed = run([sys.executable, "-c", explanation_of(root, name).python(url)])

    assert printed.startswith(b"y ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_binary_answer_goes_into_a_file(server, tmp_path):
    root, url = server
    command = f"cd {shlex.quote(str(tmp_path))}; {explanation_of(root, 'large').curl(url)}"

    printed = run(["bash", "-c", command])

    assert printed.startswith(b"200 ")
    assert (tmp_path / "response.bin").read_bytes().endswith(bytes(3 * 64 * 64 * 2))
