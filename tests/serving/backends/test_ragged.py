"""Ragged batches: joined inputs, tensors about the batch, scattered outputs. Spec CFG-050..057."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.backends.ragged import RaggedInputs, ScatteredOutputs
from serving.errors import BackendError, ServingError
from tests.serving.backends import onnx_files
from tests.serving.loading import load, outputs_of, request_of, spec_of

RAGGED = """
name: "m" max_batch_size: 16
input { name: "IN" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""
SCATTER = """
batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "OUT" source_input: "IN" }
"""


def batch_input(kind, data_type="TYPE_FP32", name="MADE"):
    return (
        f'batch_input {{ kind: {kind} target_name: "{name}" data_type: {data_type} '
        'source_input: "IN" }'
    )


def requests(*shapes):
    batch = [request_of({"IN": np.zeros(shape, np.float32)}) for shape in shapes]
    for request, shape in zip(batch, shapes, strict=True):
        request.batch_size = shape[0]
    return batch


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("BATCH_ELEMENT_COUNT", [3, 4, 10]),  # CFG-050
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [3, 7, 17]),  # CFG-051
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 3, 7, 17]),  # CFG-052
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", [0] * 10),  # CFG-053: only its length says something
        ("BATCH_ITEM_SHAPE", [[3], [4], [5], [5]]),  # CFG-054: a row for each item of the batch
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 4, 5, 5]),  # CFG-055
    ],
)
@pytest.mark.parametrize("data_type", ["TYPE_INT32", "TYPE_FP32"])
def test_each_kind_of_batch_input_tells_the_shapes_of_the_requests(kind, made, data_type):
    ragged = RaggedInputs(spec_of(RAGGED + batch_input(kind, data_type)))

    array = ragged.generated(requests((1, 3), (1, 4), (2, 5)))["MADE"]

    assert array.tolist() == made
    assert array.dtype == {"TYPE_INT32": np.int32, "TYPE_FP32": np.float32}[data_type]


def test_one_batch_input_may_fill_several_inputs_of_the_model():  # CFG-056
    text = RAGGED + batch_input("BATCH_ELEMENT_COUNT", name='A" target_name: "B')

    assert set(RaggedInputs(spec_of(text)).generated(requests((1, 3)))) == {"A", "B"}


def test_an_optional_source_that_is_left_out_has_no_elements():
    text = RAGGED.replace("dims: [-1] allow", "dims: [-1] optional: true allow", 1)
    ragged = RaggedInputs(spec_of(text + batch_input("BATCH_ACCUMULATED_ELEMENT_COUNT")))
    left_out = request_of({})

    assert ragged.generated([*requests((1, 3)), left_out])["MADE"].tolist() == [3, 3]


def test_item_shapes_do_not_have_the_batch_axis():
    text = RAGGED.replace("dims: [-1] allow", "dims: [-1, -1] allow", 1)
    ragged = RaggedInputs(spec_of(text + batch_input("BATCH_ITEM_SHAPE", "TYPE_INT32")))

    assert ragged.generated(requests((1, 2, 3), (1, 4, 1)))["MADE"].tolist() == [[2, 3], [4, 1]]


def test_a_scattered_output_takes_the_shape_of_the_source_input():  # CFG-057
    scattered = ScatteredOutputs(spec_of(RAGGED + SCATTER))
    flat = np.arange(9, dtype=np.float32)

    parts = scattered.cut("OUT", flat, requests((1, 3), (2, 3)))

    assert [part.tolist() for part in parts] == [[[0, 1, 2]], [[3, 4, 5], [6, 7, 8]]]


def test_an_output_that_is_not_the_sum_of_its_parts_fails_the_batch():
    scattered = ScatteredOutputs(spec_of(RAGGED + SCATTER))

    with pytest.raises(BackendError, match="8 elements in output 'OUT'.*'IN' in the batch make 9"):
        scattered.cut("OUT", np.zeros(8, np.float32), requests((1, 3), (2, 3)))


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_requests_of_different_lengths_share_a_batch_and_get_their_own_part(
    tmp_path, isolation
):
    """SCH-033, CFG-036 on both hosts."""
    text = RAGGED + SCATTER + batch_input("BATCH_ITEM_SHAPE", "TYPE_INT32")
    model = await load(
        f'backend: "identity" {text} dynamic_batching {{ max_queue_delay_microseconds: 20000 '
        'preferred_batch_size: 6 } output { name: "LENGTH" data_type: TYPE_INT32 dims: [1] } '
        f'parameters {{ key: "instance_isolation" value {{ string_value: "{isolation}" }} }}',
        tmp_path,
    )
    sent = [np.full((1 + i % 2, 1 + i), i, np.float32) for i in range(4)]

    answers = await asyncio.gather(*(outputs_of(model, {"IN": array}) for array in sent))

    for array, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer["OUT"], array)
        assert answer["LENGTH"].tolist() == [[array.shape[1]]] * len(array)
    assert model.stats.snapshot().execution_count == 1
    await model.drain_and_close()


def write_sum_of_each(directory):
    """FLAT [-1], ENDS [-1] -> SUMS [-1, 1]: the sum of each request's elements, by their ends."""
    nodes = [
        helper.make_node("Cast", ["ENDS"], ["ends"], to=TensorProto.INT64),
        helper.make_node("CumSum", ["FLAT", "axis"], ["running"]),
        helper.make_node("Sub", ["ends", "one"], ["last"]),
        helper.make_node("Gather", ["running", "last"], ["totals"]),
        helper.make_node("Slice", ["totals", "zero", "minus_one"], ["before"]),
        helper.make_node("Concat", ["zero_float", "before"], ["shifted"], axis=0),
        helper.make_node("Sub", ["totals", "shifted"], ["sums"]),
        helper.make_node("Reshape", ["sums", "column"], ["SUMS"]),
    ]
    constants = [
        helper.make_tensor("axis", TensorProto.INT32, [], [0]),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("minus_one", TensorProto.INT64, [1], [-1]),
        helper.make_tensor("zero_float", TensorProto.FLOAT, [1], [0.0]),
        helper.make_tensor("column", TensorProto.INT64, [2], [-1, 1]),
    ]
    onnx_files.write(
        directory,
        [
            onnx_files.value("FLAT", TensorProto.FLOAT, ["n"]),
            onnx_files.value("ENDS", TensorProto.INT32, ["requests"]),
        ],
        [onnx_files.value("SUMS", TensorProto.FLOAT, ["requests", 1])],
        nodes,
        initializers=constants,
    )


ONNX = """name: "m" backend: "onnxruntime" max_batch_size: 8 dynamic_batching {}
input { name: "FLAT" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
output { name: "SUMS" data_type: TYPE_FP32 dims: [1] }
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_INT32
              source_input: "FLAT" }
"""


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
async def test_an_onnx_model_gets_ragged_requests_end_to_end_and_where_each_one_ends(
    tmp_path, backend
):
    write_sum_of_each(tmp_path)
    file = 'default_model_filename: "model.onnx"'
    model = await load(ONNX.replace("onnxruntime", backend) + file, tmp_path)
    sent = [np.full((1, length), length, np.float32) for length in (3, 1, 5)]

    answers = await asyncio.gather(*(outputs_of(model, {"FLAT": array}) for array in sent))

    assert [answer["SUMS"].tolist() for answer in answers] == [[[9.0]], [[1.0]], [[25.0]]]
    assert model.stats.snapshot().execution_count == 1
    alone = await outputs_of(model, {"FLAT": sent[0]})
    assert alone["SUMS"].tolist() == [[9.0]]
    await model.drain_and_close()


async def test_ragged_batches_of_openvino_cannot_be_filled_up(tmp_path):
    write_sum_of_each(tmp_path)
    text = ONNX.replace("onnxruntime", "openvino") + 'default_model_filename: "model.onnx"'
    padding = 'parameters { key: "ENABLE_BATCH_PADDING" value { string_value: "YES" } }'

    with pytest.raises(ServingError, match="remove the parameter ENABLE_BATCH_PADDING"):
        await load(text + padding, tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("TYPE_INT32\n", "TYPE_FP32\n", "'ENDS' of model 'm' is TYPE_INT32 in the model file"),
        ('target_name: "ENDS"', 'target_name: "END"', "unexpected inference input 'END'"),
    ],
)
async def test_a_batch_input_must_fit_the_model_file(tmp_path, before, after, words):
    write_sum_of_each(tmp_path)

    with pytest.raises(ServingError, match=words):
        await load(ONNX.replace(before, after), tmp_path)


async def test_a_ragged_input_needs_a_model_with_one_dimension_of_any_size(tmp_path):
    onnx_files.write_identity(tmp_path, shape=("batch", "n"))
    text = RAGGED.replace("IN", "X").replace("OUT", "Y")

    with pytest.raises(ServingError, match=r"shape \[-1\] for ragged input 'X'.*\[-1, -1\]"):
        await load(text + 'backend: "onnxruntime"', tmp_path)
