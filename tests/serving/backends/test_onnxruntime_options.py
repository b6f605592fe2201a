"""What a config and the backend config ask of ONNX Runtime (ORT-01 to ORT-17)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from serving.backends.onnxruntime import session as sessions
from serving.backends.onnxruntime import values
from serving.backends.onnxruntime.accelerators import TENSORRT_KEYS, tensorrt_options
from serving.backends.onnxruntime.backend import OnnxRuntimeBackend
from serving.backends.onnxruntime.options import SessionSettings, global_threads, read_settings
from serving.errors import InvalidArgumentError, ModelLoadError, ServingError, UnavailableError
from tests.serving.backends import onnx_files
from tests.serving.loading import context_of, load, outputs_of

IDENTITY = """name: "m" backend: "onnxruntime" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [4] }
output { name: "Y" data_type: TYPE_FP32 dims: [4] }
"""
ROW = np.array([[1, 2.5, -3, 0]], np.float32)


def parameters(**values: object) -> str:
    return "".join(
        f'parameters {{ key: "{key.replace("__", ".")}" value {{ string_value: "{value}" }} }}\n'
        for key, value in values.items()
    )


def settings_of(extra: str = "", backend_config: dict[str, str] | None = None) -> SessionSettings:
    return read_settings(context_of(IDENTITY + extra, backend_config=backend_config))


def accelerated(device: str, name: str, **options: str) -> str:
    texts = "".join(f'parameters {{ key: "{k}" value: "{v}" }}' for k, v in options.items())
    return (
        f"optimization {{ execution_accelerators {{ {device}_execution_accelerator "
        f'{{ name: "{name}" {texts} }} }} }}'
    )


def test_ort_01_ort_02_ort_03_threads_mode_and_memory_reach_the_session(tmp_path):
    onnx_files.write_identity(tmp_path)
    extra = parameters(
        intra_op_thread_count=2,
        inter_op_thread_count=3,
        execution_mode=1,
        enable_mem_arena=0,
        enable_mem_pattern=0,
    )

    options = (
        OnnxRuntimeBackend()
        .load(context_of(IDENTITY + extra, tmp_path))
        .session(-1)
        .get_session_options()
    )

    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 3)
    assert options.execution_mode.name == "ORT_PARALLEL"
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern


def test_ort_04_the_arena_may_shrink_after_each_run():
    found = settings_of(parameters(memory__enable_memory_arena_shrinkage="cpu:0;gpu:0"))

    assert found.run_entries == {"memory.enable_memory_arena_shrinkage": "cpu:0;gpu:0"}


def test_ort_05_initializers_may_use_the_device_allocator():
    found = settings_of(parameters(session__use_device_allocator_for_initializers=1))

    assert found.session_entries["session.use_device_allocator_for_initializers"] == "1"


def test_ort_06_the_older_cuda_parameters_become_provider_options():
    extra = parameters(
        cudnn_conv_algo_search=1,
        gpu_mem_limit=4294967296,
        arena_extend_strategy=1,
        do_copy_in_default_stream=0,
    )

    assert settings_of(extra).accelerators.cuda == {
        "cudnn_conv_algo_search": "HEURISTIC",
        "gpu_mem_limit": "4294967296",
        "arena_extend_strategy": "kSameAsRequested",
        "do_copy_in_default_stream": "0",
    }


@pytest.mark.parametrize(
    ("level", "wanted"),
    [(-1, "ORT_ENABLE_BASIC"), (0, "ORT_ENABLE_ALL"), (1, "ORT_ENABLE_EXTENDED"),
     (2, "ORT_DISABLE_ALL")],
)  # fmt: skip
def test_ort_07_graph_levels(level, wanted):
    assert settings_of(f"optimization {{ graph {{ level: {level} }} }}").graph_level == wanted


def test_ort_08_options_of_the_accelerator_cuda_go_to_the_provider_as_they_are():
    extra = parameters(gpu_mem_limit=1) + accelerated("gpu", "cuda", gpu_mem_limit="2", new_key="x")

    assert settings_of(extra).accelerators.cuda == {"gpu_mem_limit": "2", "new_key": "x"}


EVERY_KEY = {
    "precision_mode": ("INT8", "trt_int8_enable", "1"),
    "max_workspace_size_bytes": ("1073741824", "trt_max_workspace_size", "1073741824"),
    "int8_calibration_table_name": ("t", "trt_int8_calibration_table_name", "t"),
    "int8_use_native_calibration_table": (*("true", "trt_int8_use_native_calibration_table", "1"),),
    "trt_auxiliary_streams": ("-1", "trt_auxiliary_streams", "-1"),
    "trt_builder_optimization_level": ("5", "trt_builder_optimization_level", "5"),
    **{
        key: ("False", key, "0")
        for key, (_, wanted) in TENSORRT_KEYS.items()
        if key.startswith("trt_") and "true" in wanted
    },
}


@pytest.mark.parametrize("key", ["precision_mode", *TENSORRT_KEYS])
def test_ort_09_every_key_of_tensorrt_is_mapped_to_the_provider(key):
    """Booleans accept 1, 0, true and false."""
    text, option, value = EVERY_KEY.get(key, ("1", key, "1"))
    if key.startswith("trt_profile"):
        names = [f"trt_profile_{kind}_shapes" for kind in ("min", "max", "opt")]
        assert tensorrt_options(dict.fromkeys(names, "X:1x4"))[key] == "X:1x4"
        return

    assert tensorrt_options({key: text}) == {option: value}


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("FP32", {}), ("FP16", {"trt_fp16_enable": "1"}), ("BF16", {"trt_bf16_enable": "1"})],
)
def test_ort_09_precisions(mode, wanted):
    assert tensorrt_options({"precision_mode": mode}) == wanted


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision_mode": "FP4"}, "is 'FP4': it must be one of FP32, FP16, BF16, INT8"),
        ({"trt_dla_enable": "yes"}, "is 'yes': it must be 1, 0, true or false"),
        ({"trt_builder_optimization_level": "6"}, "it must be a whole number from 0 to 5"),
        ({"max_workspace_size_bytes": "1G"}, "is '1G': it must be a number of bytes"),
        ({"trt_ep_context_embed_mode": "2"}, "it must be 0 or 1"),
        ({"trt_engine_cache_path": ""}, "it must be a text"),
        ({"trt_new": "1"}, "unknown parameter 'trt_new' of the execution accelerator 'tensorrt'"),
        ({"trt_profile_min_shapes": "X:1"}, "or none of them"),
    ],
)
def test_ort_09_a_bad_value_or_an_unknown_key_of_tensorrt_is_refused(options, text):
    with pytest.raises(InvalidArgumentError) as caught:
        tensorrt_options(options)

    assert text in caught.value.message


def test_ort_09_tensorrt_comes_before_cuda_on_its_gpu(monkeypatch):
    settings = settings_of(accelerated("gpu", "tensorrt", precision_mode="FP16"))
    everyone = [sessions.TENSORRT, sessions.CUDA, sessions.CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: everyone)

    assert sessions.providers_of(settings, 1) == [
        (sessions.TENSORRT, {"trt_fp16_enable": "1", "device_id": "1"}),
        (sessions.CUDA, {"device_id": "1"}),
        sessions.CPU,
    ]
    assert sessions.providers_of(settings, -1) == [sessions.CPU]


@pytest.mark.parametrize(
    ("device", "name", "text"),
    [("cpu", "openvino", "has no OpenVINOExecutionProvider.*onnxruntime-openvino"),
     ("cpu", "tensorrt", "unknown execution accelerator 'tensorrt' in cpu_execution_accelerator"),
     ("gpu", "openvino", "unknown execution accelerator 'openvino' in gpu_execution_accelerator")],
)  # fmt: skip
async def test_ort_10_an_accelerator_that_is_not_here_is_refused_with_the_reason(
    tmp_path, device, name, text
):
    onnx_files.write_identity(tmp_path)

    with pytest.raises(ServingError, match=text):
        await load(IDENTITY + accelerated(device, name), tmp_path)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, None),
        ({"enable-global-threadpool": "0", "intra_op_thread_count": "3"}, None),
        ({"enable-global-threadpool": "1", "intra_op_thread_count": "3"}, (3, 0)),
    ],
)
def test_ort_11_a_global_thread_pool_by_backend_config(config, wanted):
    assert global_threads(config) == wanted


def test_ort_11_the_models_own_thread_counts_say_nothing_beside_a_global_pool():
    found = settings_of(parameters(intra_op_thread_count=7), {"enable-global-threadpool": "1"})

    assert found.shares_threads
    assert found.intra_op_threads == 0


def test_ort_11_a_bad_value_of_the_backend_config_is_named():
    with pytest.raises(InvalidArgumentError, match="backend config 'enable-global-threadpool' is"):
        global_threads({"enable-global-threadpool": "maybe"})


SERVER = """
import sys
import numpy as np
from serving.in_process import ModelServer

config = {"onnxruntime": {"enable-global-threadpool": "1", "intra_op_thread_count": "2"}}
with ModelServer(sys.argv[1], backend_config=config) as server:
    for name in "a", "b":
        server.load(name)
        print(server.infer(name, {"X": np.ones((1, 4), np.float32)})["Y"].tolist())
"""


def test_ort_11_sessions_of_all_models_run_on_the_global_pool(tmp_path):
    """In a process of its own: the pool must be there before the first session."""
    for name in ("a", "b"):
        onnx_files.write_identity(tmp_path / name)

    done = subprocess.run(
        [sys.executable, "-c", SERVER, tmp_path], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.splitlines() == ["[[1.0, 1.0, 1.0, 1.0]]"] * 2, done.stderr


def test_a_provider_that_could_not_be_used_is_never_replaced_in_silence():
    path = Path("1/model.onnx")
    wanted = [sessions.TENSORRT, sessions.CUDA, sessions.CPU]

    for found in ([sessions.CPU], [sessions.CUDA, sessions.CPU]):
        with pytest.raises(ModelLoadError, match="could not use Tensorrt.*fell back to C"):
            sessions._check_providers(path, wanted, found)
    sessions._check_providers(path, wanted, wanted)


def test_an_empty_package_is_told_from_a_missing_one(monkeypatch):
    """What is left when one of two packages that share a folder was uninstalled."""
    monkeypatch.delattr(onnxruntime, "InferenceSession")

    with pytest.raises(UnavailableError, match="its package is there but empty.*--force-reinstall"):
        sessions.runtime()


@pytest.mark.parametrize(
    ("kind", "text"),
    [(17, "e4m3fn"), (18, "e4m3fnuz"), (19, "e5m2"), (20, "e5m2fnuz")],
)
async def test_fp8_travels_as_its_bits(tmp_path, kind, text):
    onnx_files.write_identity(tmp_path, kind)
    context = context_of('name: "m" backend: "onnxruntime"', tmp_path)
    OnnxRuntimeBackend().auto_complete(context)
    assert context.config.input[0].data_type == context.config.output[0].data_type == 2
    model = await load(IDENTITY.replace("FP32", "UINT8"), tmp_path)
    sent = ROW.astype(np.dtype(f"float8_{text}")).view(np.uint8)

    outputs = await outputs_of(model, {"X": sent})

    assert outputs["Y"].tolist() == sent.tolist()
    await model.drain_and_close()


async def test_text_beside_bf16_is_refused_with_the_reason(tmp_path):
    shape = ("batch", 4)
    onnx_files.write(
        tmp_path,
        [onnx_files.value("X", onnx_files.BF16, shape), onnx_files.value("T", 8, shape)],
        [onnx_files.value("Y", onnx_files.BF16, shape), onnx_files.value("U", 8, shape)],
        [helper.make_node("Identity", ["X"], ["Y"]), helper.make_node("Identity", ["T"], ["U"])],
    )

    with pytest.raises(ServingError, match="text beside BF16 or FP8"):
        await load(
            IDENTITY.replace("FP32", "BF16")
            + 'input { name: "T" data_type: TYPE_STRING dims: 4 } '
            + 'output { name: "U" data_type: TYPE_STRING dims: 4 }',
            tmp_path,
        )


async def test_ort_16_weights_in_files_of_their_own_are_found(tmp_path):
    weights = np.arange(4, dtype=np.float32)
    path = onnx_files.write(
        tmp_path,
        [onnx_files.value("X", onnx_files.FLOAT, ("batch", 4))],
        [onnx_files.value("Y", onnx_files.FLOAT, ("batch", 4))],
        [helper.make_node("Add", ["X", "W"], ["Y"])],
        initializers=[helper.make_tensor("W", TensorProto.FLOAT, [4], weights.tobytes(), raw=True)],
    )
    model = onnx.load(path)
    path.unlink()
    path.mkdir()
    onnx.save(model, path / "model.onnx", save_as_external_data=True, size_threshold=0,
              location="weights.bin")  # fmt: skip
    assert (path / "weights.bin").is_file()

    served = await load(IDENTITY, tmp_path)

    assert (await outputs_of(served, {"X": ROW}))["Y"].tolist() == (ROW + weights).tolist()
    await served.drain_and_close()


CUSTOM_OPS = """
#include <stdio.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *marker = fopen("%s", "w");
    fclose(marker);
    return options && api ? 0 : options;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build a library")
async def test_ort_14_a_library_of_custom_operators_is_registered(tmp_path):
    onnx_files.write_identity(tmp_path)
    marker = tmp_path / "registered"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "1" / "ops.so"],
        input=textwrap.dedent(CUSTOM_OPS % marker), text=True, check=True,
    )  # fmt: skip

    model = await load(IDENTITY + 'model_operations { op_library_filename: "ops.so" }', tmp_path)

    assert marker.exists()
    await model.drain_and_close()


async def test_ort_14_a_library_without_operators_is_refused_by_name(tmp_path):
    onnx_files.write_identity(tmp_path)
    (tmp_path / "1" / "ops.so").write_bytes(b"no library")

    with pytest.raises(ServingError, match=r"cannot load 1/model.onnx: .*ops\.so"):
        await load(IDENTITY + 'model_operations { op_library_filename: "ops.so" }', tmp_path)


def test_ort_17_a_run_with_bound_outputs_gives_what_a_plain_one_gives(tmp_path):
    """On the CPU here; tests/gpu has it on a GPU."""
    shape = ("batch", 4)
    path = onnx_files.write(
        tmp_path,
        [onnx_files.value("X", onnx_files.FLOAT, shape), onnx_files.value("B", 16, shape)],
        [onnx_files.value("Y", onnx_files.FLOAT, shape), onnx_files.value("C", 16, shape)],
        [helper.make_node("Neg", ["X"], ["Y"]), helper.make_node("Identity", ["B"], ["C"])],
    )
    session = sessions.open_session(path, SessionSettings(), [sessions.CPU])
    types = values.raw_types(sessions.signature_of(session, path).inputs)
    run = values.BoundRun(onnxruntime, session, ("cpu", 0), frozenset({"C"}))
    half = ROW.astype(ml_dtypes.bfloat16)

    negative, same = run({"X": ROW, "B": half}, types, ["Y", "C"], None)

    assert negative.tolist() == (-ROW).tolist()
    np.testing.assert_array_equal(same, half)


def test_ort_17_a_cpu_group_without_a_count_has_two_instances():
    assert OnnxRuntimeBackend.default_cpu_instance_count == 2
