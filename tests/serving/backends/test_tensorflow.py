"""The tensorflow backend on real sessions; TensorFlow comes with `make test-all`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from serving.backends.base import Placement
from serving.backends.tensorflow import TensorFlowBackend
from serving.config.decode import InstanceKind
from serving.errors import ErrorCode, ServingError
from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.backends.test_ragged import ONNX
from tests.serving.backends.tree_models import parameter
from tests.serving.loading import context_of, infer, load, outputs_of, request_of

tf = pytest.importorskip("tensorflow", reason="needs tensorflow-cpu: `make test-all` installs it")
v1 = tf.compat.v1
pytestmark = pytest.mark.heavy

IO = """
max_batch_size: 8
input [{ name: "A" data_type: TYPE_FP32 dims: [-1] }, { name: "B" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "SUM" data_type: TYPE_FP32 dims: [-1] },
        { name: "DIFFERENCE" data_type: TYPE_FP32 dims: [-1] }]
"""
SAVED = 'name: "m" backend: "tensorflow" platform: "tensorflow_savedmodel"' + IO
GRAPH = 'name: "m" backend: "tensorflow" platform: "tensorflow_graphdef"' + IO


class AddSub(tf.Module):
    """A + B and A - B, times a variable that the file holds."""

    def __init__(self):
        super().__init__()
        self.one = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None, None], name=name) for name in "AB"])
    def __call__(self, A, B):  # noqa: N803 - names of the inputs
        return {"SUM": (A + B) * self.one, "DIFFERENCE": (A - B) * self.one}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="TEXT")])
    def shout(self, TEXT):  # noqa: N803
        return {"LOUD": tf.strings.join([TEXT, "!"])}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "1" / "model.savedmodel"
    module = AddSub()
    signatures = {"serving_default": module.__call__, "shout": module.shout}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path.parent.parent


def write_graph(directory: Path, build, name="model.graphdef") -> None:
    with tf.Graph().as_default() as graph:
        build()
    path = directory / "1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(graph.as_graph_def().SerializeToString())


def add_sub_graph():
    a, b = (v1.placeholder(tf.float32, [None, None], name) for name in "AB")
    tf.add(a, b, "SUM")
    tf.subtract(a, b, "DIFFERENCE")


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
    assert "\n" not in caught.value.message
    return caught.value.message


async def test_a_saved_model_and_a_frozen_graph_answer_alike(saved, tmp_path):
    """TF-01: dynamic shapes too."""
    write_graph(tmp_path, add_sub_graph)
    for text, directory in ((SAVED, saved), (GRAPH, tmp_path)):
        model = await load(text + "instance_group { count: 2 kind: KIND_CPU }", directory)
        for count, width in ((1, 4), (3, 2)):
            sent = rows(count, width)
            assert_equal(await outputs_of(model, sent), add_sub(sent))
        await model.drain_and_close()


async def test_text_goes_in_and_comes_out_by_the_signature_that_is_asked_for(saved):
    """TF-01: TF_SIGNATURE_DEF, strings."""
    text = (
        'name: "m" backend: "tensorflow" platform: "tensorflow_savedmodel" max_batch_size: 8 '
        'input { name: "TEXT" data_type: TYPE_STRING dims: [1] reshape { shape: [] } }'
        'output { name: "LOUD" data_type: TYPE_STRING dims: [1] reshape { shape: [] } }'
    )
    model = await load(text + parameter("TF_SIGNATURE_DEF", "shout"), saved)

    sent = np.array([["é".encode()], [b"\xff\0"]], np.object_)
    outputs = await outputs_of(model, {"TEXT": sent})

    assert outputs["LOUD"].tolist() == [["é!".encode()], [b"\xff\0!"]]
    await model.drain_and_close()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (parameter("TF_SIGNATURE_DEF", "predict"), "has no signature 'predict'; its signatures: "),
        (parameter("TF_GRAPH_TAG", "train"), "associated with tags 'train' could not be found"),
        ("instance_group { kind: KIND_GPU gpus: [1] }", "asks for GPU 1, and tensorflow finds 0"),
    ],
)
async def test_what_the_model_has_not_is_refused(saved, more, words):
    """TF-01."""
    if "instance_group" not in more:
        more += "instance_group { count: 1 kind: KIND_CPU }"
    with pytest.raises(ServingError) as caught:
        TensorFlowBackend().load(context_of(SAVED + more, saved))

    assert words in caught.value.message


async def test_init_operations_run_before_the_first_request(tmp_path):
    """TF-01: TF_INIT_OPS_FILE."""

    def build():
        a = v1.placeholder(tf.float32, [None, 2], "A")
        one = v1.get_variable("one", shape=(), initializer=v1.ones_initializer(), use_resource=True)
        v1.variables_initializer([one], name="fill")
        tf.add(a, one, "SUM")

    write_graph(tmp_path, build)
    (tmp_path / "ops.json").write_text('{"init_ops": ["fill"]}')
    text = (
        'name: "m" backend: "tensorflow" platform: "tensorflow_graphdef" max_batch_size: 8 '
        'input { name: "A" data_type: TYPE_FP32 dims: [2] }'
        'output { name: "SUM" data_type: TYPE_FP32 dims: [2] }'
    )
    model = await load(text + parameter("TF_INIT_OPS_FILE", "ops.json"), tmp_path)

    outputs = await outputs_of(model, {"A": np.zeros((1, 2), np.float32)})

    assert outputs["SUM"].tolist() == [[1.0, 1.0]]
    await model.drain_and_close()
    (tmp_path / "ops.json").write_text('{"init_ops": ["flush"]}')
    message = await refused(text + parameter("TF_INIT_OPS_FILE", "ops.json"), tmp_path)
    assert "'flush'" in message


@pytest.mark.parametrize(("share", "sessions"), [("1", 3), ("2", 2), ("8", 1)])
async def test_instances_share_sessions_as_far_as_they_may(saved, share, sessions):
    """TF-01: MAX_SESSION_SHARE_COUNT, 1 by default."""
    text = SAVED + "instance_group { count: 3 kind: KIND_CPU }"
    context = context_of(text + parameter("MAX_SESSION_SHARE_COUNT", share), saved)
    model = TensorFlowBackend().load(context)
    placement = Placement("m_0", InstanceKind.CPU)

    instances = [model.create_instance(placement) for _ in range(3)]

    assert len({id(item._loaded.session) for item in instances}) == sessions
    model.unload()


async def test_threads_are_set(saved):
    """TF-01: TF_NUM_INTRA_THREADS, TF_NUM_INTER_THREADS, TF_USE_PER_SESSION_THREADS."""
    names = ("TF_NUM_INTRA_THREADS", "TF_NUM_INTER_THREADS", "TF_USE_PER_SESSION_THREADS")
    model = await load(SAVED + "".join(parameter(name, "1") for name in names), saved)

    assert_equal(await outputs_of(model, rows(2)), add_sub(rows(2)))
    await model.drain_and_close()


async def test_a_graph_may_be_placed_on_the_device_of_the_instance(saved):
    """KIND_CPU names the CPU; KIND_MODEL leaves operations where the graph puts them."""
    for kind, expected in (("KIND_CPU", "/device:CPU:0"), ("KIND_MODEL", "")):
        context = context_of(SAVED + f"instance_group {{ count: 1 kind: {kind} }}", saved)
        model = TensorFlowBackend().load(context)
        (session,) = model._sessions
        placed = {
            item.device for item in session.graph.get_operations() if item.type == "Placeholder"
        }
        assert placed == {expected}
        model.unload()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            GRAPH.replace('"B"', '"C"'),
            "has no node 'C'; its placeholders are A, B, its ends SUM, D",
        ),
        (GRAPH.replace("FP32", "INT32"), "is TYPE_FP32 in the model file, but data_type is TYPE_I"),
        (GRAPH.replace("[-1]", "[-1, 2]"), "the config makes it [-1, -1, 2]"),
    ],
)
async def test_a_frozen_graph_is_held_against_its_config(tmp_path, config, words):
    write_graph(tmp_path, add_sub_graph)

    assert words in await refused(config, tmp_path)


async def test_a_damaged_graph_is_refused(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.graphdef").write_bytes(b"\0 no graph")

    assert "tensorflow cannot load model.graphdef" in await refused(GRAPH, tmp_path)


@pytest.mark.parametrize(
    "kind",
    ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    + ["float16", "bfloat16", "float64"],
)
async def test_every_type_of_number_passes_unchanged(tmp_path, kind):
    write_graph(
        tmp_path, lambda: tf.identity(v1.placeholder(getattr(tf, kind), [None, 4], "A"), "SUM")
    )
    name = kind.upper().replace("BFLOAT", "BF").replace("FLOAT", "FP")
    text = (
        'name: "m" backend: "tensorflow" platform: "tensorflow_graphdef" max_batch_size: 8 '
        f'input {{ name: "A" data_type: TYPE_{name} dims: [4] }}'
        f'output {{ name: "SUM" data_type: TYPE_{name} dims: [4] }}'
    )
    model = await load(text, tmp_path)
    sent = np.array([[0, 1, 1, 0], [1, 0, 0, 1]]).astype(model.spec.inputs["A"].datatype.dtype)

    outputs = await outputs_of(model, {"A": sent})

    assert outputs["SUM"].dtype == sent.dtype
    np.testing.assert_array_equal(outputs["SUM"], sent)
    await model.drain_and_close()


async def test_a_scalar_of_the_graph_is_one_element_for_callers(tmp_path):
    write_graph(tmp_path, lambda: tf.identity(v1.placeholder(tf.float32, [], "A"), "SUM"))
    text = (
        'name: "m" backend: "tensorflow" platform: "tensorflow_graphdef" '
        'input { name: "A" data_type: TYPE_FP32 dims: [1] }'
        'output { name: "SUM" data_type: TYPE_FP32 dims: [1] }'
    )
    model = await load(text, tmp_path)

    assert (await outputs_of(model, {"A": np.array([7], np.float32)}))["SUM"].tolist() == [7.0]
    await model.drain_and_close()


async def test_ragged_requests_share_a_batch_with_where_each_one_ends(tmp_path):
    """CFG-009, CFG-036."""

    def build():
        flat = v1.placeholder(tf.float32, [None], "FLAT")
        ends = v1.placeholder(tf.int32, [None], "ENDS")
        totals = tf.gather(tf.cumsum(flat), ends - 1)
        before = tf.concat([tf.zeros([1]), totals[:-1]], axis=0)
        tf.reshape(totals - before, [-1, 1], "SUMS")

    write_graph(tmp_path, build)
    text = ONNX.replace('"onnxruntime"', '"tensorflow" platform: "tensorflow_graphdef"')
    model = await load(text, tmp_path)
    sent = [np.full((1, length), length, np.float32) for length in (3, 1, 5)]

    answers = await asyncio.gather(*(outputs_of(model, {"FLAT": array}) for array in sent))

    assert [answer["SUMS"].tolist() for answer in answers] == [[[9.0]], [[1.0]], [[25.0]]]
    await model.drain_and_close()


async def test_what_the_graph_refuses_is_the_callers_mistake_in_one_line(saved):
    model = await load(SAVED, saved)

    sent = rows(1) | {"B": np.ones((1, 3), np.float32)}
    answers = await asyncio.gather(*(infer(model, request_of(sent)) for _ in range(2)))

    for answer in answers:
        assert answer.error.code is ErrorCode.INVALID_ARG
        assert "\n" not in answer.error.message
        assert "{{" not in answer.error.message
    await model.drain_and_close()


class TestContract(BackendContract):
    backend = "tensorflow"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        def write(folder):
            module = AddSub()
            path = str(folder / "model.savedmodel")
            tf.saved_model.save(module, path, signatures=module.__call__)

        return Subject(
            config='backend: "tensorflow"' + IO,
            write=write,
            inputs=rows,
            expected=add_sub,
            misfit=lambda: rows(1) | {"B": np.ones((1, 3), np.float32)},
            runtime_module="tensorflow",
        )
