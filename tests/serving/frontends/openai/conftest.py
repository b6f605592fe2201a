"""One server inside the test process, with models that complete text and give embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.restrictions import parse
from serving.server_thread import ServerThread

WRITER = """
import json
import threading
import numpy as np
import triton_python_backend_utils as pb_utils


def text(value):
    return np.array([value], np.object_)


class TritonPythonModel:
    '''Says the words of its prompt again, one response for each, and fails at the word "boom".'''

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request,)).start()

    def answer(self, request):
        def given(name):
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            return None if tensor is None else tensor.as_numpy().ravel()[0]

        prompt, sampling = given("text_input").decode(), given("sampling_parameters").decode()
        most = json.loads(sampling)["max_tokens"]
        words = [sampling] if prompt.startswith("show") else prompt.split(" ")
        sender = request.get_response_sender()
        for index, word in enumerate(words[:most]):
            if word == "boom":
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("out of words")))
                break
            sender.send(pb_utils.InferenceResponse([
                pb_utils.Tensor("text_output", text((" " * (index > 0) + word).encode())),
                pb_utils.Tensor("num_input_tokens", np.array([len(prompt.split(" "))], np.uint32)),
                pb_utils.Tensor("num_output_tokens", np.array([1], np.uint32)),
            ]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
WRITER_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "text_input" data_type: TYPE_STRING dims: [1] }
input { name: "stream" data_type: TYPE_BOOL dims: [1] }
input { name: "sampling_parameters" data_type: TYPE_STRING dims: [1] optional: true }
output { name: "text_output" data_type: TYPE_STRING dims: [-1] }
output { name: "num_input_tokens" data_type: TYPE_UINT32 dims: [1] }
output { name: "num_output_tokens" data_type: TYPE_UINT32 dims: [1] }
parameters { key: "chat_template" value { string_value: "{content} " } }
parameters { key: "chat_template_system" value { string_value: "<{content}> " } }
parameters { key: "chat_template_end" value { string_value: "end" } }
"""
LETTERS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    '''How many letters a text has, and how many vowels.'''

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            rows = [[len(item), sum(map(item.count, b"aeiou"))] for item in texts.ravel()]
            tensor = pb_utils.Tensor("embedding", np.array(rows, np.float32))
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
"""
LETTERS_CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "text" data_type: TYPE_STRING dims: [1] }
output { name: "embedding" data_type: TYPE_FP32 dims: [2] }
"""
ECHO_CONFIG = """
backend: "identity"
input { name: "text_input" data_type: TYPE_STRING dims: [1] }
output { name: "text_output" data_type: TYPE_STRING dims: [1] }
"""
ROWS_CONFIG = """
backend: "identity"
input { name: "messages" data_type: TYPE_STRING dims: [1] }
output { name: "text_output" data_type: TYPE_STRING dims: [1] }
"""
NUMBERS_CONFIG = """
backend: "identity"
input { name: "IN" data_type: TYPE_FP32 dims: [1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [1] }
"""


def _write(model: Path, config: str, source: str = "") -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    if source:
        (model / "1" / "model.py").write_text(source)


@pytest.fixture(scope="package")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    _write(root / "writer", WRITER_CONFIG, WRITER)
    _write(root / "letters", LETTERS_CONFIG, LETTERS)
    _write(root / "echo", ECHO_CONFIG)
    _write(root / "rows", ROWS_CONFIG)
    _write(root / "numbers", NUMBERS_CONFIG)
    return root


@pytest.fixture(scope="package")
def base_url(repository: Path) -> Iterator[str]:
    """Requests need the header that openai's client makes of its key."""
    options = FrontendOptions(
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        http_restricted=(parse("inference:authorization=Bearer s3cret"),),
    )
    core = ServerOptions((repository,), model_control_mode=ControlMode.EXPLICIT, load_models=("*",))
    thread = ServerThread(core, options)
    thread.start(60)
    try:
        yield f"http://127.0.0.1:{thread.ports.http}/v1"
    finally:
        thread.stop()


@pytest.fixture(scope="package")
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="s3cret", max_retries=0) as client:
        yield client
