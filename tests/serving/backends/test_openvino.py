"""The openvino backend on real compiled models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.backends.openvino import OpenVinoBackend
from serving.backends.openvino_options import read_settings
from serving.errors import ErrorCode, ServingError
from tests.serving.backends import onnx_files
from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.backends.openvino_files import openvino, write_add_sub, write_running_sum
from tests.serving.backends.tree_models import parameter
from tests.serving.loading import context_of, infer, load, outputs_of, request_of

ADD_SUB = """name: "m" backend: "openvino" max_batch_size: 8
input [{ name: "A" data_type: TYPE_FP32 dims: [4] }, { name: "B" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "SUM" data_type: TYPE_FP32 dims: [4] },
        { name: "DIFFERENCE" data_type: TYPE_FP32 dims: [4] }]
"""
ONNX = 'default_model_filename: "model.onnx"\n'
BARE = 'name: "m" backend: "openvino"'
YES = "YES"


def rows(count, width=4):
    a = np.arange(count * width, dtype=np.float32).reshape(count, width)
    return {"A": a * 3, "B": a + 1}


def add_sub(sent):
    return {"SUM": sent["A"] + sent["B"], "DIFFERENCE": sent["A"] - sent["B"]}


def assert_equal(outputs, wanted):
    assert outputs.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(outputs[name], array)


async def refused(text, directory):
    with pytest.raises(ServingError) as caught:
        await load(text, directory)
    return caught.value.message


def compiled_with(text, directory):
    """The compiled model of the first device, to ask for its properties."""
    if "instance_group" not in text:
        text += "instance_group { count: 1 kind: KIND_CPU }"
    model = OpenVinoBackend().load(context_of(text, directory))
    return next(iter(model._compiled.values()))


async def test_an_ir_and_an_onnx_file_answer_alike(tmp_path):
    """OV-01: model.xml with model.bin by default, another file by its name."""
    write_add_sub(tmp_path / "ir")
    onnx_files.write_add_sub(tmp_path / "onnx")
    for text, directory in ((ADD_SUB, tmp_path / "ir"), (ADD_SUB + ONNX, tmp_path / "onnx")):
        model = await load(text, directory)

        assert_equal(await outputs_of(model, rows(3)), add_sub(rows(3)))
        await model.drain_and_close()


@pytest.mark.parametrize("fixed", [1, 2])
async def test_a_model_with_a_fixed_batch_size_is_given_any(tmp_path, fixed):
    """OV-01: what SKIP_OV_DYNAMIC_BATCHSIZE switches off."""
    write_add_sub(tmp_path, (fixed, 4))
    model = await load(ADD_SUB, tmp_path)

    for count in (1, 3, 8):
        assert_equal(await outputs_of(model, rows(count)), add_sub(rows(count)))
    await model.drain_and_close()
    skipping = ADD_SUB + parameter("SKIP_OV_DYNAMIC_BATCHSIZE", YES)
    assert "does not support batching" in await refused(skipping, tmp_path)


async def test_a_kept_batch_size_takes_nothing_else_unless_batches_are_filled_up(tmp_path):
    """OV-01: SKIP_OV_DYNAMIC_BATCHSIZE, ENABLE_BATCH_PADDING."""
    write_add_sub(tmp_path, (8, 4))
    keeping = ADD_SUB + parameter("SKIP_OV_DYNAMIC_BATCHSIZE", YES)
    model = await load(keeping, tmp_path)
    assert_equal(await outputs_of(model, rows(8)), add_sub(rows(8)))
    answer = await infer(model, request_of(rows(3)))
    assert answer.error.code is ErrorCode.INVALID_ARG
    assert "runs batches of 8 only, and this one has 3" in answer.error.message
    await model.drain_and_close()

    model = await load(keeping + parameter("ENABLE_BATCH_PADDING", YES), tmp_path)
    for count in (3, 8):
        assert_equal(await outputs_of(model, rows(count)), add_sub(rows(count)))
    await model.drain_and_close()


async def test_padding_alone_runs_every_batch_at_the_largest_size(tmp_path):
    """OV-01: ENABLE_BATCH_PADDING."""
    write_add_sub(tmp_path)
    text = ADD_SUB + parameter("ENABLE_BATCH_PADDING", YES)

    assert str(compiled_with(text, tmp_path).inputs[0].partial_shape) == "[8,4]"
    model = await load(text, tmp_path)
    assert_equal(await outputs_of(model, rows(5)), add_sub(rows(5)))
    await model.drain_and_close()


async def test_reshaping_gives_the_model_the_dims_of_the_config(tmp_path):
    """OV-01: RESHAPE_IO_LAYERS."""
    write_add_sub(tmp_path, (1, 2))
    assert "the config makes it [-1, 4]" in await refused(ADD_SUB, tmp_path)

    model = await load(ADD_SUB + parameter("RESHAPE_IO_LAYERS", YES), tmp_path)

    assert_equal(await outputs_of(model, rows(2)), add_sub(rows(2)))
    await model.drain_and_close()


def test_properties_reach_the_compiled_model(tmp_path):
    """OV-01: f32 unless asked otherwise, threads, streams, hint."""
    write_add_sub(tmp_path)
    usual = compiled_with(ADD_SUB, tmp_path)
    told = {"INFERENCE_NUM_THREADS": "1", "PERFORMANCE_HINT": "throughput", "HINT_BF16": YES}
    other = compiled_with(ADD_SUB + "".join(parameter(*item) for item in told.items()), tmp_path)
    two = compiled_with(ADD_SUB + "instance_group { count: 2 kind: KIND_CPU }", tmp_path)
    streams = compiled_with(ADD_SUB + parameter("NUM_STREAMS", "1"), tmp_path)

    assert usual.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32
    assert other.get_property("INFERENCE_NUM_THREADS") == 1
    assert "THROUGHPUT" in str(other.get_property("PERFORMANCE_HINT"))
    assert read_settings(
        context_of(ADD_SUB + parameter("HINT_BF16", YES), tmp_path)
    ).properties == {"INFERENCE_PRECISION_HINT": "bf16"}
    assert (two.get_property("NUM_STREAMS"), streams.get_property("NUM_STREAMS")) == (2, 1)


async def test_instances_share_the_compiled_model_and_have_a_request_each(tmp_path):
    write_add_sub(tmp_path)
    context = context_of(ADD_SUB + "instance_group { count: 2 kind: KIND_CPU }", tmp_path)

    model = OpenVinoBackend().load(context)

    assert list(model._compiled) == ["CPU"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (parameter("INFERENCE_NUM_THREADS", "-1"), "'INFERENCE_NUM_THREADS' is '-1': it must be a"),
        (parameter("NUM_STREAMS", "9999999999"), "it must be AUTO, NUMA or a whole number"),
        (parameter("NUM_STREAMS", "many"), "'NUM_STREAMS' is 'many': it must be AUTO, NUMA or a"),
        (parameter("PERFORMANCE_HINT", "fast"), "it must be one of LATENCY, THROUGHPUT"),
        (parameter("ENABLE_BATCH_PADDING", "maybe"), "it must be YES or NO"),
        (parameter("INFERENCE_PRECISION_HINT", "f8"), "it must be one of f32, f16, bf16, dynamic"),
        (parameter("CPU_EXTENSION_PATH", "ops.so"), "'ops.so': there is no such file"),
        (parameter("TARGET_DEVICE", "GPU"), "openvino finds no device GPU, only CPU"),
        (parameter("TARGET_DEVICE", "gpu.1"), "openvino finds no device GPU.1, only CPU"),
        (parameter("TARGET_DEVICE", "TOASTER"), 'Device with "TOASTER" name is not registered'),
        ('default_model_filename: "model.pb"', "unable to find '1/model.pb'"),
        ("model_transaction_policy { decoupled: true }", "openvino answers once"),
    ],
)
async def test_what_cannot_be_had_is_refused_with_the_reason(tmp_path, text, words):
    """OV-01."""
    write_add_sub(tmp_path)

    message = await refused(ADD_SUB + text, tmp_path)

    assert words in message
    assert ".cpp" not in message


async def test_an_extension_that_is_none_is_refused(tmp_path):
    """OV-01: CPU_EXTENSION_PATH."""
    write_add_sub(tmp_path)
    (tmp_path / "ops.so").write_bytes(b"\x7fELF of no library")

    message = await refused(ADD_SUB + parameter("CPU_EXTENSION_PATH", "ops.so"), tmp_path)

    assert "openvino cannot use ops.so" in message
    assert ".cpp" not in message


def test_a_gpu_of_another_maker_is_no_device_of_openvino(tmp_path):
    """KIND_GPU is Intel's GPU; instances are never moved to the CPU in silence."""
    write_add_sub(tmp_path)
    text = ADD_SUB + "instance_group { kind: KIND_GPU gpus: [1] }"

    with pytest.raises(ServingError, match=r"finds no device GPU\.1, only CPU.*Intel's"):
        OpenVinoBackend().load(context_of(text, tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("model.xml", b"<net/>", "holds no layers"),
        ("model.xml", b"", "is not an OpenVINO model"),
        ("model.onnx", b"no graph", "is not an ONNX model"),
        ("model.tflite", b"no flatbuffer", "is not a TensorFlow Lite model"),
        ("model.tflite", b"\0\0\0\0TFL3", "openvino cannot load 1/model.tflite"),
        ("model.pdmodel", b"paddle", "of no kind that the openvino backend reads"),
    ],
)
async def test_a_broken_file_is_refused_in_one_sentence_and_in_silence(
    tmp_path, capfd, file, content, words
):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / file).write_bytes(content)

    message = await refused(ADD_SUB + f'default_model_filename: "{file}"', tmp_path)

    assert words in message
    assert "\n" not in message
    assert str(tmp_path) not in message
    assert capfd.readouterr() == ("", "")


async def test_operations_that_cannot_be_converted_are_named(tmp_path):
    path = onnx_files.write(
        tmp_path,
        [onnx_files.value("A", onnx_files.FLOAT, ("batch", 4))],
        [onnx_files.value("SUM", onnx_files.FLOAT, ("batch", 4))],
        [helper.make_node("Unheard", ["A"], ["SUM"], domain="of.no.one")],
    )
    assert path.is_file()

    message = await refused(ADD_SUB + ONNX, tmp_path)

    assert "does not know how to run the operations of.no.one.Unheard" in message


@pytest.mark.parametrize(
    "kind",
    ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
    + ["FP16", "DOUBLE"],
)
async def test_every_type_of_number_passes_unchanged(tmp_path, kind):
    names = {"FP16": "FLOAT16", "DOUBLE": "DOUBLE"}
    onnx_files.write_identity(tmp_path, getattr(TensorProto, names.get(kind, kind)))
    config_kind = "FP64" if kind == "DOUBLE" else kind
    text = (
        f'name: "m" backend: "openvino" max_batch_size: 8 {ONNX}'
        f'input {{ name: "X" data_type: TYPE_{config_kind} dims: [4] }}'
        f'output {{ name: "Y" data_type: TYPE_{config_kind} dims: [4] }}'
    )
    model = await load(text, tmp_path)
    sent = np.array([[0, 1, 1, 0], [1, 0, 0, 1]]).astype(model.spec.inputs["X"].datatype.dtype)

    outputs = await outputs_of(model, {"X": sent})

    assert outputs["Y"].dtype == sent.dtype
    np.testing.assert_array_equal(outputs["Y"], sent)
    await model.drain_and_close()


async def test_text_is_refused_with_the_backend_that_takes_it(tmp_path):
    onnx_files.write_identity(tmp_path, onnx_files.STRING)
    text = (
        f'name: "m" backend: "openvino" max_batch_size: 8 {ONNX}'
        'input { name: "X" data_type: TYPE_STRING dims: [4] }'
        'output { name: "Y" data_type: TYPE_STRING dims: [4] }'
    )

    message = await refused(text, tmp_path)

    assert "is string in the model file" in message
    assert "serve it with the backend onnxruntime" in message


async def test_a_scalar_of_the_model_is_one_element_for_callers(tmp_path):
    onnx_files.write_identity(tmp_path, shape=())
    text = (
        f'name: "m" backend: "openvino" {ONNX}'
        'input { name: "X" data_type: TYPE_FP32 dims: [1] }'
        'output { name: "Y" data_type: TYPE_FP32 dims: [1] }'
    )
    model = await load(text, tmp_path)

    outputs = await outputs_of(model, {"X": np.array([7], np.float32)})

    assert outputs["Y"].tolist() == [7.0]
    await model.drain_and_close()


async def test_the_names_of_an_alias_and_of_a_layer_are_known(tmp_path):
    """IR files may give a tensor several names, and older ones none."""
    write_add_sub(tmp_path)
    xml = tmp_path / "1" / "model.xml"
    given = xml.read_text()
    for text, replaced in (
        (ADD_SUB.replace('"A"', '"alias"'), given.replace('names="A"', 'names="A,alias"')),
        (ADD_SUB, given.replace(' names="A"', "")),
    ):
        xml.write_text(replaced)
        model = await load(text, tmp_path)
        sent = rows(2)
        first = "alias" if "alias" in text else "A"

        outputs = await outputs_of(model, {first: sent["A"], "B": sent["B"]})

        assert_equal(outputs, add_sub(sent))
        await model.drain_and_close()


def test_nothing_is_reported_to_the_maker_of_the_runtime(tmp_path):
    """Where openvino is imported it sends a message, unless the package that does so is absent."""
    write_add_sub(tmp_path / "model")
    (tmp_path / "home").mkdir()
    code = (
        "from pathlib import Path\n"
        "from serving.backends.openvino import OpenVinoBackend\n"
        "from tests.serving.loading import context_of\n"
        f"context = context_of({BARE!r}, Path({str(tmp_path / 'model')!r}))\n"
        "OpenVinoBackend().auto_complete(context)\n"
        "import sys\n"
        "assert context.config.input and sys.modules['openvino_telemetry'] is None\n"
    )

    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "HOME": str(tmp_path / "home")},
    )

    assert list((tmp_path / "home").iterdir()) == []


class TestContract(BackendContract):
    backend = "openvino"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        return Subject(
            config=ADD_SUB.replace('name: "m"', "").replace("[4]", "[-1]"),
            write=lambda folder: write_add_sub(folder.parent, ("batch", "width")),
            inputs=rows,
            expected=add_sub,
            misfit=lambda: rows(1) | {"B": np.ones((1, 3), np.float32)},
            runtime_module="openvino",
        )


SUM = """name: "m" backend: "openvino"
input { name: "X" data_type: TYPE_FP32 dims: [1, 2] }
output { name: "Y" data_type: TYPE_FP32 dims: [1, 2] }
"""


async def test_a_state_inside_the_model_is_not_the_next_callers(tmp_path):
    write_running_sum(tmp_path)
    model = await load(SUM, tmp_path)
    sent = {"X": np.ones((1, 2), np.float32)}

    answers = [(await outputs_of(model, sent))["Y"].tolist() for _ in range(2)]

    assert answers == [[[1.0, 1.0]], [[1.0, 1.0]]]
    await model.drain_and_close()


async def test_a_state_inside_the_model_lasts_as_long_as_its_sequence(tmp_path):
    write_running_sum(tmp_path)
    model = await load(SUM + "sequence_batching {}", tmp_path)
    sent = {"X": np.ones((1, 2), np.float32)}

    async def send(sequence, **flags):
        flags = {"sequence_start": False, "sequence_end": False, **flags}
        return (await outputs_of(model, sent, correlation_id=sequence, **flags))["Y"][0, 0]

    first = [await send(7, sequence_start=True), await send(7, sequence_end=True)]
    assert first == [1.0, 2.0]
    assert await send(8, sequence_start=True, sequence_end=True) == 1.0
    await model.drain_and_close()


async def test_sequences_that_would_share_a_state_are_refused(tmp_path):
    write_running_sum(tmp_path)
    oldest = "sequence_batching { oldest { max_candidate_sequences: 4 } }"

    assert "would share them: set max_batch_size" in await refused(SUM + oldest, tmp_path)
