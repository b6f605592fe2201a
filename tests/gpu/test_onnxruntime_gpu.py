"""ONNX Runtime on a GPU: the CUDA and TensorRT providers, outputs bound there (ORT-08, 09, 17)."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from tests.serving.backends import onnx_files
from tests.serving.backends.test_onnxruntime_options import IDENTITY, ROW, accelerated, parameters
from tests.serving.loading import load, outputs_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
        reason="the installed onnxruntime has no CUDA: pip install 'conch[gpu]' replaces it",
    ),
]
GPU = "instance_group { kind: KIND_GPU gpus: 0 }\n"


async def answers_with(tmp_path, extra: str) -> None:
    onnx_files.write_identity(tmp_path)
    model = await load(IDENTITY + GPU + extra, tmp_path, gpu_count=1)
    outputs = await outputs_of(model, {"X": ROW})
    np.testing.assert_array_equal(outputs["Y"], ROW)
    await model.drain_and_close()


async def test_ort_17_outputs_are_bound_on_the_gpu_and_come_back(tmp_path):
    await answers_with(tmp_path, "")


async def test_ort_04_ort_05_ort_06_memory_options_of_a_gpu_session(tmp_path):
    extra = parameters(
        memory__enable_memory_arena_shrinkage="gpu:0",
        session__use_device_allocator_for_initializers=1,
        gpu_mem_limit=1 << 30,
        arena_extend_strategy=1,
        cudnn_conv_algo_search=1,
    )
    await answers_with(tmp_path, extra)


async def test_ort_08_options_of_the_cuda_provider(tmp_path):
    await answers_with(tmp_path, accelerated("gpu", "cuda", cudnn_conv_use_max_workspace="1"))


@pytest.mark.skipif(
    "TensorrtExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="the installed onnxruntime has no TensorRT provider",
)
async def test_ort_09_the_tensorrt_accelerator(tmp_path):
    options = {"precision_mode": "FP32", "trt_builder_optimization_level": "0"}
    await answers_with(tmp_path, accelerated("gpu", "tensorrt", **options))


async def test_bf16_and_text_run_beside_a_gpu(tmp_path):
    onnx_files.write_identity(tmp_path, onnx_files.STRING)
    text = IDENTITY.replace("FP32", "STRING") + GPU
    model = await load(text, tmp_path, gpu_count=1)
    sent = np.array([[b"a", b"b", b"", b"d"]], dtype=np.object_)
    assert (await outputs_of(model, {"X": sent}))["Y"].tolist() == sent.tolist()
    await model.drain_and_close()
