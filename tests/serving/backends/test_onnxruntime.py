"""The ONNX Runtime backend on real sessions."""

from __future__ import annotations

import asyncio

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from serving.backends.onnxruntime.backend import OnnxRuntimeBackend
from serving.errors import ErrorCode, FailureReason, ServingError, UnsupportedError
from tests.serving.backends import onnx_files
from tests.serving.loading import context_of, infer, load, outputs_of, request_of

IDENTITY = """name: "m" backend: "onnxruntime" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [4] }
output { name: "Y" data_type: TYPE_FP32 dims: [4] }
"""
ADD_SUB = """name: "m" backend: "onnxruntime" max_batch_size: 8
input [{ name: "A" data_type: TYPE_FP32 dims: [4] }, { name: "B" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "SUM" data_type: TYPE_FP32 dims: [4] },
        { name: "DIFFERENCE" data_type: TYPE_FP32 dims: [4] }]
"""


def completed(text, directory, **backend_config):
    context = context_of(text, directory, backend_config=backend_config)
    OnnxRuntimeBackend().auto_complete(context)
    return context.config


async def refused(text, directory):
    with pytest.raises(ServingError) as caught:
        await load(text, directory)
    return caught.value.message


async def test_a_model_answers_with_what_its_graph_computes(tmp_path):
    onnx_files.write_add_sub(tmp_path)
    model = await load(ADD_SUB, tmp_path)
    a, b = np.ones((2, 4), np.float32) * 3, np.ones((2, 4), np.float32)

    outputs = await outputs_of(model, {"A": a, "B": b})

    np.testing.assert_array_equal(outputs["SUM"], a + b)
    np.testing.assert_array_equal(outputs["DIFFERENCE"], a - b)
    await model.drain_and_close()


async def test_requests_in_one_batch_each_get_their_own_rows(tmp_path):
    onnx_files.write_identity(tmp_path)
    model = await load(IDENTITY + "dynamic_batching {}", tmp_path)
    sent = [np.full((1 + i % 2, 4), i, np.float32) for i in range(5)]

    answers = await asyncio.gather(*(outputs_of(model, {"X": array}) for array in sent))

    for array, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer["Y"], array)
    assert model.stats.snapshot().execution_count == 1
    await model.drain_and_close()


async def test_only_wanted_outputs_are_returned(tmp_path):
    onnx_files.write_add_sub(tmp_path)
    model = await load(ADD_SUB, tmp_path)
    row = np.ones((1, 4), np.float32)

    outputs = await outputs_of(model, {"A": row, "B": row}, outputs=("DIFFERENCE",))

    assert list(outputs) == ["DIFFERENCE"]
    await model.drain_and_close()


async def test_text_goes_in_and_comes_out_as_bytes(tmp_path):
    onnx_files.write_identity(tmp_path, onnx_files.STRING, ("batch", 2))
    model = await load(IDENTITY.replace("FP32", "STRING").replace("[4]", "[2]"), tmp_path)
    sent = np.array([["é".encode(), b""]], dtype=np.object_)

    outputs = await outputs_of(model, {"X": sent})

    assert outputs["Y"].tolist() == [["é".encode(), b""]]
    await model.drain_and_close()


async def test_bytes_that_are_no_text_fail_only_their_own_request(tmp_path):
    onnx_files.write_identity(tmp_path, onnx_files.STRING, ("batch", 1))
    text = IDENTITY.replace("FP32", "STRING").replace("[4]", "[1]") + "dynamic_batching {}"
    model = await load(text, tmp_path)
    good, bad = (np.array([[item]], dtype=np.object_) for item in (b"ok", b"\xff"))

    answers = await asyncio.gather(*(infer(model, request_of({"X": x})) for x in (good, bad, good)))

    assert answers[0].outputs[0].array.tolist() == answers[2].outputs[0].array.tolist() == [[b"ok"]]
    assert answers[1].error.code is ErrorCode.INVALID_ARG
    assert "no UTF-8 text" in answers[1].error.message
    await model.drain_and_close()


async def test_bf16_passes_unchanged(tmp_path):
    onnx_files.write_identity(tmp_path, onnx_files.BF16)
    model = await load(IDENTITY.replace("FP32", "BF16"), tmp_path)
    sent = np.array([[1, 2.5, -3, 0]], dtype=ml_dtypes.bfloat16)

    outputs = await outputs_of(model, {"X": sent})

    assert outputs["Y"].dtype == sent.dtype
    np.testing.assert_array_equal(outputs["Y"], sent)
    await model.drain_and_close()


async def test_a_scalar_of_the_model_is_one_element_for_callers(tmp_path):
    onnx_files.write_identity(tmp_path, shape=())
    text = IDENTITY.replace("max_batch_size: 8", "max_batch_size: 0").replace("[4]", "[1]")
    model = await load(text, tmp_path)

    outputs = await outputs_of(model, {"X": np.array([7], np.float32)})

    assert outputs["Y"].tolist() == [7.0]
    await model.drain_and_close()


async def test_zero_rows_are_a_valid_request(tmp_path):
    onnx_files.write_identity(tmp_path, shape=("batch", "n"))
    model = await load(IDENTITY.replace("[4]", "[-1]"), tmp_path)

    outputs = await outputs_of(model, {"X": np.zeros((2, 0), np.float32)})

    assert outputs["Y"].shape == (2, 0)
    await model.drain_and_close()


async def test_unaligned_request_bytes_are_served(tmp_path):
    onnx_files.write_identity(tmp_path)
    model = await load(IDENTITY, tmp_path)
    body = b"x" + np.arange(4, dtype=np.float32).tobytes()
    sent = np.frombuffer(memoryview(body)[1:], dtype=np.float32).reshape(1, 4)

    outputs = await outputs_of(model, {"X": sent})

    assert outputs["Y"].tolist() == [[0, 1, 2, 3]]
    await model.drain_and_close()


async def test_dimensions_that_do_not_fit_the_graph_are_the_callers_mistake(tmp_path):
    onnx_files.write_add_sub(tmp_path, ("batch", "n"))
    model = await load(ADD_SUB.replace("[4]", "[-1]"), tmp_path)
    inputs = {"A": np.ones((1, 3), np.float32), "B": np.ones((1, 4), np.float32)}

    response = await infer(model, request_of(inputs))

    assert response.error.failure_reason is FailureReason.BACKEND
    assert "'m'" in response.error.message
    assert "ONNXRuntimeError" not in response.error.message
    assert (await outputs_of(model, {"A": inputs["A"], "B": inputs["A"]}))["SUM"].shape == (1, 3)
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"X"', '"Z"', "unexpected inference input 'Z', allowed inputs are: X"),
        ('"Y"', '"Z"', "unexpected inference output 'Z', allowed outputs are: Y"),
        ("TYPE_FP32", "TYPE_FP64", "is TYPE_FP32 in the model file, but data_type is TYPE_FP64"),
        ("[4]", "[5]", "has shape [-1, 4] in the model file, but the config makes it [-1, 5]"),
        ("[4]", "[4, 1]", "the config makes it [-1, 4, 1] (a batch dimension first"),
        ("max_batch_size: 8", "max_batch_size: 0", "the config makes it [4]: change dims"),
    ],
)
async def test_a_config_that_contradicts_the_model_is_refused_with_both_values(
    tmp_path, old, new, text
):
    onnx_files.write_identity(tmp_path)

    message = await refused(IDENTITY.replace(old, new), tmp_path)

    assert text in message
    assert message.startswith("failed to load 'm' version 1: load: ")


async def test_a_missing_input_in_the_config_is_refused_and_named(tmp_path):
    onnx_files.write_add_sub(tmp_path)
    text = ADD_SUB.replace(', { name: "B" data_type: TYPE_FP32 dims: [4] }', "")

    message = await refused(text, tmp_path)

    assert "configuration expects 1 inputs, model provides 2: add B to `input`" in message


async def test_batching_needs_a_dynamic_first_dimension(tmp_path):
    onnx_files.write_identity(tmp_path, shape=(1, 4))

    message = await refused(IDENTITY, tmp_path)

    assert "max_batch_size 8, but the model file does not support batching" in message


async def test_sequence_outputs_are_refused_with_the_reason(tmp_path):
    sequence = helper.make_tensor_sequence_value_info("S", onnx_files.FLOAT, None)
    onnx_files.write(
        tmp_path,
        [onnx_files.value("X", onnx_files.FLOAT, ["n"])],
        [sequence],
        [helper.make_node("SequenceConstruct", ["X"], ["S"])],
    )

    with pytest.raises(UnsupportedError, match=r"'S' of model 'm' is seq\(tensor\(float\)\)"):
        completed('name: "m"', tmp_path)


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ("model_transaction_policy { decoupled: true }", "onnxruntime answers once"),
        (
            'parameters { key: "intra_op_thread_count" value { string_value: "many" } }',
            "parameter 'intra_op_thread_count' is 'many': it must be a whole number of threads",
        ),
        *(
            (
                'parameters { key: "inter_op_thread_count" '
                f'value {{ string_value: "{number}" }} }}',
                "it must be a whole number of threads up to 1024, 0 for the default",
            )
            for number in ("\u00b2", "1025", "9" * 5000)
        ),
        (
            'parameters { key: "execution_mode" value { string_value: "2" } }',
            "parameter 'execution_mode' is '2': it must be 0 or 1",
        ),
        (
            "optimization { execution_accelerators { "
            'gpu_execution_accelerator { name: "warp" } } }',
            "unknown execution accelerator 'warp'",
        ),
        (
            "optimization { execution_accelerators { "
            'cpu_execution_accelerator { name: "openvino" } } }',
            "has no OpenVINOExecutionProvider",
        ),
        (
            'parameters { key: "memory.enable_memory_arena_shrinkage" '
            'value { string_value: "cpu:1" } }',
            "is 'cpu:1': it must be as in cpu:0;gpu:0",
        ),
        ('model_operations { op_library_filename: "ops.so" }', "'ops.so' is neither in"),
        ('model_operations { op_library_filename: "../ops.so" }', "outside model directory"),
        ('default_model_filename: "../../m.onnx"', "outside model directory"),
    ],
)
async def test_options_that_cannot_be_had_are_refused_with_the_reason(tmp_path, extra, text):
    onnx_files.write_identity(tmp_path)

    assert text in await refused(IDENTITY + extra, tmp_path)


async def test_a_gpu_without_the_cuda_provider_is_refused_with_the_install_command(tmp_path):
    onnx_files.write_identity(tmp_path)

    with pytest.raises(ServingError, match=r"no CUDAExecutionProvider.*pip install 'conch\[gpu\]'"):
        await load(IDENTITY + "instance_group { kind: KIND_GPU }", tmp_path, gpu_count=1)


async def test_options_of_the_config_reach_the_session(tmp_path):
    onnx_files.write_identity(tmp_path)
    extra = """
    optimization { graph { level: -1 } }
    parameters { key: "intra_op_thread_count" value { string_value: "1" } }
    parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "cpu:0" } }
    """
    backend = OnnxRuntimeBackend()

    loaded = backend.load(context_of(IDENTITY + extra, tmp_path))

    options = loaded.session(-1).get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.graph_optimization_level.name == "ORT_ENABLE_BASIC"
    model = await load(IDENTITY + extra, tmp_path)
    await outputs_of(model, {"X": np.ones((1, 4), np.float32)})
    await model.drain_and_close()


async def test_a_missing_or_broken_file_is_named(tmp_path):
    assert "unable to find '1/model.onnx' for model 'm'" in await refused(IDENTITY, tmp_path)

    onnx_files.write_identity(tmp_path).write_bytes(b"this is no model")

    message = await refused(IDENTITY, tmp_path)
    assert "onnxruntime cannot load 1/model.onnx: Protobuf parsing failed" in message
    assert str(tmp_path) not in message


async def test_a_model_folder_with_external_data_is_found(tmp_path):
    path = onnx_files.write_identity(tmp_path)
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / "model.onnx").write_bytes(content)

    model = await load(IDENTITY, tmp_path)

    assert model.is_ready
    await model.drain_and_close()


async def test_an_output_without_the_batch_dimension_is_an_error_and_no_mix_up(tmp_path):
    onnx_files.write(
        tmp_path,
        [onnx_files.value("X", onnx_files.FLOAT, ("batch", 4))],
        [onnx_files.value("Y", onnx_files.FLOAT, ("other", 4))],
        [helper.make_node("Compress", ["X", "first"], ["Y"], axis=0)],
        initializers=[helper.make_tensor("first", onnx_files.BOOL, [1], [True])],
    )
    model = await load(IDENTITY, tmp_path)

    response = await infer(model, request_of({"X": np.ones((2, 4), np.float32)}))

    assert "its first dimension must be the batch" in response.error.message
    await model.drain_and_close()


async def test_a_model_whose_file_does_not_say_the_rank_serves_what_the_config_says(tmp_path):
    onnx_files.write_identity(tmp_path, shape=None)
    model = await load(IDENTITY, tmp_path)

    outputs = await outputs_of(model, {"X": np.ones((2, 4), np.float32)})

    assert outputs["Y"].shape == (2, 4)
    await model.drain_and_close()


async def test_outputs_that_the_config_leaves_out_do_not_stand_against_batching(tmp_path):
    shape = ("batch", 4)
    onnx_files.write(
        tmp_path,
        [onnx_files.value("X", onnx_files.FLOAT, shape)],
        [
            onnx_files.value("Y", onnx_files.FLOAT, shape),
            onnx_files.value("MEAN", onnx_files.FLOAT, (1, 1)),
        ],
        [
            helper.make_node("Identity", ["X"], ["Y"]),
            helper.make_node("ReduceMean", ["X"], ["MEAN"]),
        ],
    )

    model = await load(IDENTITY, tmp_path)

    assert list(await outputs_of(model, {"X": np.ones((1, 4), np.float32)})) == ["Y"]
    await model.drain_and_close()
