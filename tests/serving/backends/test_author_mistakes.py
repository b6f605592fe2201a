"""Mistakes of a backend's author: each is told in one sentence, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.backends.factory import ResponseFactory
from serving.datatypes import BY_NAME
from serving.errors import BackendError, ErrorCode, ModelLoadError, ServingError
from serving.in_process import ModelServer
from serving.request import InferenceRequest, InputTensor
from tests.serving.loading import spec_of

IO = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
PROCESS = 'parameters { key: "instance_isolation" value { string_value: "process" } }'
CODE = """
import numpy as np
from serving.backends.base import Backend, LoadedModel, TensorInstance

class Instance(TensorInstance):
    def run(self, inputs, output_names):
        return RESULT

class Model(LoadedModel):
    def __init__(self, context):
        self.context = context
    def create_instance(self, placement):
        return INSTANCE

class Mine(Backend):
    name = "NAME"
    def load(self, context):
        return MODEL
"""
RESULTS = {
    "wide": (
        "{'OUT': inputs['IN'].astype(np.float64)}",
        "as float64, but the config says TYPE_FP32",
    ),
    "listed": ("{'OUT': [[1.0, 2.0]]}", "as list, but the config says TYPE_FP32"),
    "absent": ("{'OTHER': inputs['IN']}", "did not return output 'OUT'"),
    "nothing": ("None", "returned NoneType: it must return a dictionary of arrays"),
}
MADE = {
    "no_model": (
        "None",
        "Instance(self.context)",
        "returned NoneType: it must return a LoadedModel",
    ),
    "no_instance": ("Model(context)", "None", "returned NoneType: it must return a ModelInstance"),
}


def write(root: Path, name: str, **parts: str) -> None:
    code = CODE.replace("NAME", name)
    for part in ("MODEL", "INSTANCE", "RESULT"):
        code = code.replace(part, parts[part])
    for model, extra in ((name, ""), (f"{name}_apart", PROCESS)):
        (root / "models" / model / "1").mkdir(parents=True)
        (root / "models" / model / "config.pbtxt").write_text(f'backend: "{name}"{IO}{extra}')
    (root / "backends" / name).mkdir(parents=True)
    (root / "backends" / name / f"conch_{name}.py").write_text(code)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """The backend directory is given as text, as the repository may be."""
    root = tmp_path_factory.mktemp("mistakes")
    for name, (result, _) in RESULTS.items():
        write(root, name, MODEL="Model(context)", INSTANCE="Instance(self.context)", RESULT=result)
    for name, (model, instance, _) in MADE.items():
        write(root, name, MODEL=model, INSTANCE=instance, RESULT="inputs")
    directory = str(root / "backends")
    with ModelServer(root / "models", backend_directory=directory, exit_timeout_secs=5) as server:
        yield server


@pytest.mark.parametrize("name", [*RESULTS, "wide_apart"])
def test_results_that_the_config_does_not_promise_never_leave(served, name):
    """Bytes of float64 under the name FP32 are other numbers for the caller."""
    model = served.load(name)

    with pytest.raises(ServingError) as caught:
        model.infer({"IN": np.ones((1, 2), np.float32)})

    assert caught.value.code is ErrorCode.INTERNAL
    assert RESULTS[name.removesuffix("_apart")][1] in caught.value.message
    assert model.is_ready()


@pytest.mark.parametrize("name", MADE)
def test_what_is_no_model_or_no_instance_fails_the_load(served, name):
    """Without waiting for an instance that never comes."""
    with pytest.raises(ModelLoadError, match=MADE[name][2]):
        served.load(name)


def test_a_factory_sends_what_the_config_promises_only():
    answers = []
    request = InferenceRequest("m", {"IN": InputTensor("IN", BY_NAME["FP32"], (1,), np.ones(1))})
    request.responder = lambda request, response: answers.append(response)
    factory = ResponseFactory(spec_of(f'name: "m" backend: "mine"{IO}'), 1, request)

    with pytest.raises(BackendError, match="'OTHER', which is none of the config's: OUT"):
        factory.send({"OTHER": np.ones((1, 2), np.float32)})
    with pytest.raises(BackendError, match="as int64, but the config says TYPE_FP32"):
        factory.send({"OUT": np.ones((1, 2), np.int64)})
    factory.send({"OUT": np.ones((1, 2), np.float32)}, is_final=True)

    assert [item.outputs[0].name for item in answers] == ["OUT"]
