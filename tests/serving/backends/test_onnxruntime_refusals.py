"""Whose fault a run is that ONNX Runtime refuses."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from onnx import helper

from serving.backends.onnxruntime.options import SHRINKAGE, SessionSettings
from serving.backends.onnxruntime.session import cause, run_options
from serving.datatypes import BY_NAME
from serving.errors import ErrorCode, ModelLoadError
from tests.serving.backends import onnx_files
from tests.serving.loading import infer, load, outputs_of, request_of

GATHER = """name: "m" backend: "onnxruntime" max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: 3 }, { name: "I" data_type: TYPE_INT64 dims: 1 }]
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
dynamic_batching {}
"""
IDENTITY = """name: "m" backend: "onnxruntime" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: 4 }
output { name: "Y" data_type: TYPE_FP32 dims: 4 }
"""
SHRINK = 'parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "%s" } }\n'


@pytest.mark.parametrize(
    ("graph", "sent", "words"),
    [
        (("MatMul", "FP32", "[-1, -1]"), ((1, 2), (3, 1)), "MatMul dimension mismatch"),
        (("Div", "INT32", "[-1]"), ((1,), (1,)), "Integer division by zero"),
    ],
)
async def test_what_only_the_operation_can_refuse_is_the_callers_mistake(
    tmp_path, graph, sent, words, capfd
):
    """ONNX Runtime calls it a failure of its own; the text is without places in its sources, and
    the runtime prints nothing."""
    kind, datatype, dims = graph
    number = helper.np_dtype_to_tensor_dtype(BY_NAME[datatype].dtype)
    shape = [f"d{i}" for i in range(dims.count("-1"))]
    names = ("A", "B", "Y")
    a, b, y = (onnx_files.value(name, number, [f"{name}{dim}" for dim in shape]) for name in names)
    onnx_files.write(tmp_path, [a, b], [y], [helper.make_node(kind, ["A", "B"], ["Y"])])
    text = 'name: "m" backend: "onnxruntime" '
    for name in names:
        side = "output" if name == "Y" else "input"
        text += f'{side} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }} '
    model = await load(text, tmp_path)
    arrays = {n: np.zeros(s, BY_NAME[datatype].dtype) for n, s in zip("AB", sent, strict=True)}

    error = (await infer(model, request_of(arrays))).error

    assert error.code is ErrorCode.INVALID_ARG
    assert error.message.startswith("model 'm' refused the request: ")
    assert error.message.endswith(f"Status Message: {words}")
    assert capfd.readouterr().err == ""
    await model.drain_and_close()


def test_a_cause_is_without_codes_and_places_in_the_sources():
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : Status Message: /src/core/op_kernel.cc:87 virtual "
        "OrtValue* onnxruntime::OpKernelContext::OutputMLValue(int, const onnxruntime::Shape&) "
        "[ONNXRuntimeError] : 1 : FAIL : tensor.cc:57 CalculateSize Size() must be >= 0"
    )

    assert cause(text) == "Status Message: Size() must be >= 0"


async def test_a_load_error_names_files_without_where_the_repository_lies(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["X"], ["Y"])],
        "g",
        [onnx_files.value("X", onnx_files.FLOAT, ["n"])],
        [onnx_files.value("Y", onnx_files.FLOAT, ["n"])],
    )
    model = helper.make_model(graph, ir_version=99)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(ModelLoadError) as caught:
        await load(
            'name: "m" backend: "onnxruntime" '
            'input { name: "X" data_type: TYPE_FP32 dims: -1 } '
            'output { name: "Y" data_type: TYPE_FP32 dims: -1 }',
            tmp_path,
        )

    assert "cannot load 1/model.onnx: Unsupported model IR version: 99" in caught.value.message
    assert str(tmp_path) not in caught.value.message


async def test_what_one_caller_sent_fails_nobody_else_of_the_batch(tmp_path):
    """Only the operation knows the bounds of an index."""
    x, index, y = (
        onnx_files.value("X", onnx_files.FLOAT, ["n", 3]),
        onnx_files.value("I", helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)), ["n", 1]),
        onnx_files.value("Y", onnx_files.FLOAT, ["n", 1]),
    )
    node = helper.make_node("GatherElements", ["X", "I"], ["Y"], axis=1)
    onnx_files.write(tmp_path, [x, index], [y], [node])
    model = await load(GATHER, tmp_path)
    row = np.array([[5, 6, 7]], np.float32)

    answers = await asyncio.gather(
        *(infer(model, request_of({"X": row, "I": np.array([[at]])})) for at in (0, 9, 2))
    )

    assert answers[1].error.code is ErrorCode.INVALID_ARG
    assert [answers[i].outputs[0].array.item() for i in (0, 2)] == [5.0, 7.0]
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (SHRINK % "cpu:0;gpu:0", "memory.enable_memory_arena_shrinkage gpu:0"),
        (
            SHRINK % "cpu:0" + 'parameters { key: "enable_mem_arena" value { string_value: "0" } }',
            "memory.enable_memory_arena_shrinkage cpu:0",
        ),
        (
            "optimization { execution_accelerators { "
            'gpu_execution_accelerator [{ name: "tensorrt" }, { name: "cuda" }] } }',
            "accelerator tensorrt, accelerator cuda",
        ),
    ],
)
async def test_what_is_asked_of_devices_without_an_instance_is_logged_and_requests_go_on(
    tmp_path, caplog, extra, words
):
    """ORT-04, ORT-17: no caller hears of it, and no accelerator is passed over in silence."""
    onnx_files.write_identity(tmp_path)
    model = await load(IDENTITY + extra, tmp_path)

    answer = await outputs_of(model, {"X": np.ones((1, 4), np.float32)})

    np.testing.assert_array_equal(answer["Y"], [[1, 1, 1, 1]])
    assert f"the config asks for {words}, and no instance runs on such a device" in caplog.text
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("device", "named", "wanted"),
    [(-1, -1, "cpu:0"), (0, 0, "cpu:0;gpu:0"), (1, 1, "cpu:0"), (0, 2, "cpu:0;gpu:0")],
)
def test_each_session_shrinks_the_arenas_that_it_has(device, named, wanted):
    """ORT-04. A process of an instance's own counts its GPU as number 0."""
    settings = SessionSettings(run_entries={SHRINKAGE: "cpu:0;gpu:0;gpu:2"})

    options = run_options(settings, device, named)

    assert options.get_run_config_entry(SHRINKAGE) == wanted
