"""One model in several runtimes: the answers are alike within stated tolerances.

Silero VAD as its authors pack it, a small net written for each runtime, and a forest as XGBoost and
Treelite write it.
"""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from examples import fetch_models
from tests.serving.backends import onnx_files, tree_models
from tests.serving.backends.openvino_files import write_ir
from tests.serving.backends.pytorch import archives, modules
from tests.serving.backends.pytorch.served import io
from tests.serving.loading import load, outputs_of

NET_TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}
SPEECH_TOLERANCE = {"rtol": 0, "atol": 1e-5}
"""Probabilities; the largest difference that was seen is 3.3e-7."""
CHUNK, CONTEXT = 512, 64


def net_config(backend, outputs=("OUTPUT__0", "OUTPUT__1"), inputs=("INPUT__0", "INPUT__1")):
    return (
        f'name: "m" backend: "{backend}" max_batch_size: 8\n'
        + io("input", *inputs)
        + io("output", *outputs)
    )


def write_torchscript(directory):
    modules.write(archives.Net().eval(), directory)
    return net_config("pytorch")


def write_pt2(directory):
    archives.NET.export(directory / "1")
    return net_config("pytorch") + 'platform: "torch_aoti"\n'


def write_onnx(directory):
    net = archives.Net()
    weights = [
        numpy_helper.from_array(tensor.detach().numpy(), name)
        for name, tensor in net.linear.named_parameters()
    ]
    onnx_files.write(
        directory,
        [onnx_files.value(f"INPUT__{i}", onnx_files.FLOAT, ("b", n)) for i, n in enumerate((4, 2))],
        [
            onnx_files.value(f"OUTPUT__{i}", onnx_files.FLOAT, ("b", n))
            for i, n in enumerate((3, 2))
        ],
        [
            helper.make_node("Gemm", ["INPUT__0", "weight", "bias"], ["linear"], transB=1),
            helper.make_node("Relu", ["linear"], ["OUTPUT__0"]),
            helper.make_node("Add", ["INPUT__1", "INPUT__1"], ["OUTPUT__1"]),
        ],
        initializers=weights,
    )
    config = net_config("onnxruntime")
    for name, size in (("INPUT__0", 4), ("INPUT__1", 2), ("OUTPUT__0", 3), ("OUTPUT__1", 2)):
        old = f'"{name}" data_type: TYPE_FP32 dims: [-1]'
        config = config.replace(old, old.replace("[-1]", f"[{size}]"))
    return config


def write_openvino(directory):
    config = write_onnx(directory).replace('"onnxruntime"', '"openvino"')
    write_ir(directory / "1" / "model.onnx")
    return config


@pytest.mark.parametrize("write", [write_torchscript, write_pt2, write_onnx, write_openvino])
@pytest.mark.parametrize("rows", [1, 5])
async def test_a_small_net_answers_alike(tmp_path, write, rows):
    """Issue 7: TorchScript, PT2, ONNX and OpenVINO IR."""
    config = write(tmp_path)
    model = await load(config, tmp_path)
    generator = np.random.default_rng(rows)
    x, y = (generator.normal(size=(rows, n)).astype(np.float32) for n in (4, 2))
    net = archives.Net()
    with torch.no_grad():
        wanted = net(torch.from_numpy(x), torch.from_numpy(y))

    answer = await outputs_of(model, {"INPUT__0": x, "INPUT__1": y})

    for index, tensor in enumerate(wanted):
        np.testing.assert_allclose(answer[f"OUTPUT__{index}"], tensor.numpy(), **NET_TOLERANCE)
    await model.drain_and_close()


SPEECH_ONNX = """name: "m" backend: "onnxruntime" max_batch_size: 0
input [{ name: "input" data_type: TYPE_FP32 dims: [1, 576] },
       { name: "sr" data_type: TYPE_INT64 dims: [1] reshape { } }]
output { name: "output" data_type: TYPE_FP32 dims: [1, 1] }
sequence_batching {
  state { input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [2, 1, 128] }
}
"""
SPEECH_OPENVINO = """name: "m" backend: "openvino" max_batch_size: 0
default_model_filename: "silero_vad_openvino_16k.onnx"
input { name: "input" data_type: TYPE_FP32 dims: [1, 576] }
output { name: "output" data_type: TYPE_FP32 dims: [1, 1] }
sequence_batching {
  state { input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [2, 1, 128] }
}
"""
SPEECH_TORCH = """name: "m" backend: "pytorch" max_batch_size: 0
parameters { key: "ENABLE_JIT_EXECUTOR" value { string_value: "false" } }
input { name: "sound__0" data_type: TYPE_FP32 dims: [1, 576] }
output { name: "speech__0" data_type: TYPE_FP32 dims: [1, 1] }
sequence_batching {
  state { input_name: "state__1" output_name: "state__1" data_type: TYPE_FP32 dims: [2, 1, 128] }
}
"""


class Step(nn.Module):
    """The part of the detector that keeps nothing itself."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.step(sound, state)


class Whole(nn.Module):
    """The detector as it is packed, which keeps its state in itself."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, sound: Tensor) -> Tensor:
        return self.detector(sound, 16000)


def other_format(suffix):
    (file,) = [
        item
        for model in fetch_models.DEMO_MODELS
        for item in model.other_formats
        if item.path.suffix == suffix
    ]
    if not file.is_present:
        pytest.skip("the demo models are not fetched: python -m examples.fetch_models")
    assert hashlib.sha256(file.path.read_bytes()).hexdigest() == file.sha256
    return file.path


@pytest.fixture(scope="module")
def detector():
    return torch.jit.load(str(other_format(".jit")), map_location="cpu")


@pytest.fixture(scope="module")
def speech():
    """A buzz that comes and goes: every chunk with the end of the one before, [1, 576] each."""
    at = np.arange(CONTEXT + 30 * CHUNK) / 16000
    buzz = sum(np.sin(2 * np.pi * 130 * number * at) / number for number in range(1, 20))
    noise = np.random.default_rng(1).normal(0, 0.01, at.size)
    sound = (buzz * (np.sin(2 * np.pi * 3 * at) > 0) * 0.2 + noise).astype(np.float32)
    sound[:CONTEXT] = 0
    starts = range(0, 30 * CHUNK, CHUNK)
    return [sound[start : start + CONTEXT + CHUNK].reshape(1, -1) for start in starts]


async def probabilities(model, sounds, make_inputs):
    found = []
    for index, chunk in enumerate(sounds):
        answer = await outputs_of(
            model,
            make_inputs(chunk),
            correlation_id=5,
            sequence_start=index == 0,
            sequence_end=index == len(sounds) - 1,
        )
        found.append(next(iter(answer.values())).item())
    await model.drain_and_close()
    return found


async def test_a_real_speech_detector_answers_alike_in_onnx_openvino_and_torchscript(
    tmp_path, detector, speech
):
    """Issue 7: Silero VAD, its state kept by the server in both, and by the module itself."""
    found = {}
    onnx = fetch_models.REPOSITORY / "speech_detector"
    model = await load(SPEECH_ONNX, onnx)
    rate = np.array([16000], np.int64)
    found["onnx"] = await probabilities(model, speech, lambda x: {"input": x, "sr": rate})
    (tmp_path / "1").mkdir()
    shutil.copy(other_format(".onnx"), tmp_path / "1")
    model = await load(SPEECH_OPENVINO, tmp_path)
    found["openvino"] = await probabilities(model, speech, lambda x: {"input": x})
    modules.write(Step(detector._model), tmp_path)
    model = await load(SPEECH_TORCH, tmp_path)
    found["torchscript"] = await probabilities(model, speech, lambda x: {"sound__0": x})
    (tmp_path / "whole").mkdir()
    modules.write(Whole(detector), tmp_path / "whole")
    text = SPEECH_TORCH.partition("sequence_batching")[0].replace("576", str(CHUNK))
    model = await load(text, tmp_path / "whole")
    found["whole"] = await probabilities(model, speech, lambda x: {"sound__0": x[:, CONTEXT:]})

    assert max(found["onnx"]) > 0.25  # it hears something
    for name in ("openvino", "torchscript", "whole"):
        np.testing.assert_allclose(found[name], found["onnx"], **SPEECH_TOLERANCE)


async def test_a_forest_answers_alike_as_xgboost_and_treelite_write_it(tmp_path):
    """Issue 7: the same trees as JSON, UBJSON and a Treelite checkpoint, to the last bit."""
    rows, scores = tree_models.recorded("xgboost_binary")
    found = []
    for model_type, file in (
        ("xgboost_json", "xgboost.json"),
        ("xgboost_ubj", "xgboost.ubj"),
        ("treelite_checkpoint", "checkpoint.tl"),
    ):
        tree_models.copy("xgboost_binary", file, tmp_path / "1")
        model = await load(tree_models.config(model_type, output_class="false"), tmp_path)
        answer = await outputs_of(model, {"input__0": rows.astype(np.float32)})
        found.append(answer["output__0"])
        await model.drain_and_close()

    np.testing.assert_allclose(found[0], scores[:, 0], rtol=tree_models.TOLERANCE)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
