"""TensorRT on a real GPU: engines are built here, served, and compared with onnxruntime.

With TensorRT where it is installed, else with TensorRT-RTX where it knows the GPU. What takes no
device is in tests/serving/backends/tensorrt. Source: spec TRT-01..05, AUT-04, CFG-066, CFG-082.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from serving.backends.tensorrt import cuda_runtime
from serving.backends.tensorrt.build import BuildOptions, Progress, build
from serving.backends.tensorrt.cuda_runtime import Device
from serving.errors import ServingError
from serving.in_process import Model, ModelServer
from tests.serving.backends import onnx_files
from tests.serving.backends.contract import Arrays, BackendContract, Subject
from tests.serving.backends.onnx_files import FLOAT, value

pytestmark = pytest.mark.gpu

COLUMNS, WIDTH = 64, 256
RTX_DEVICES = {(7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)}
PARAMETER = 'parameters { key: "%s" value { string_value: "%s" } }'


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda_runtime.driver().device(0)


@pytest.fixture(scope="module")
def library(device: Device) -> str:
    """The builder that can build for this GPU."""
    if importlib.util.find_spec("tensorrt"):
        return "tensorrt"
    if importlib.util.find_spec("tensorrt_rtx") and device.capability in RTX_DEVICES:
        return "tensorrt_rtx"
    pytest.skip(
        f"no builder for {device.name}: TensorRT is not installed, and TensorRT-RTX does not know "
        f"compute capability {device.capability}"
    )


Builder = Callable[..., bytes]


@pytest.fixture(scope="module")
def engine(library: str) -> Builder:
    """`engine(onnx, {"X": (low, best, high)}, ...)`: the plan."""

    def make(onnx_path: Path, *profiles: Any) -> bytes:
        options = BuildOptions(library, profiles=profiles)
        return bytes(build(onnx_path, options, Progress(lambda phase, fraction: None)).plan)

    return make


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dense layers, X [n, 64] -> Y [n, 256], with weights that are the same every time."""
    rng = np.random.default_rng(7)
    weights = {
        "w1": rng.standard_normal((COLUMNS, WIDTH)).astype(np.float32) / 8,
        "w2": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16,
    }
    return onnx_files.write(
        tmp_path_factory.mktemp("net"),
        [value("X", FLOAT, ["n", COLUMNS])],
        [value("Y", FLOAT, ["n", WIDTH])],
        [
            helper.make_node("MatMul", ["X", "w1"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w2"], ["Y"]),
        ],
        initializers=[numpy_helper.from_array(item, name) for name, item in weights.items()],
    )


def rows_of(low: int, best: int, high: int) -> dict[str, tuple[tuple[int, int], ...]]:
    return {"X": ((low, COLUMNS), (best, COLUMNS), (high, COLUMNS))}


@pytest.fixture(scope="module")
def plan(engine: Builder, net: Path) -> bytes:
    """Two profiles: 1 to 8 rows, and 8 to 64."""
    return engine(net, rows_of(1, 4, 8), rows_of(8, 32, 64))


@pytest.fixture(scope="module")
def expected(net: Path) -> Callable[[np.ndarray], np.ndarray]:
    session = onnxruntime.InferenceSession(str(net), providers=["CPUExecutionProvider"])
    return lambda array: session.run(["Y"], {"X": array})[0]


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, COLUMNS)).astype(np.float32)


CONFIG = f"""
backend: "tensorrt" max_batch_size: 64
input {{ name: "X" data_type: TYPE_FP32 dims: [{COLUMNS}] }}
output {{ name: "Y" data_type: TYPE_FP32 dims: [{WIDTH}] }}
"""
BOTH = 'instance_group { kind: KIND_GPU profile: ["0", "1"] count: %d }'
SMALL = CONFIG.replace("64\ninput", "8\ninput")


class Serving:
    """`serve(plan, config)`: the loaded model, on a server of its own, which is `server` then."""

    server: ModelServer

    def __init__(self, folder: Path, open_servers: contextlib.ExitStack) -> None:
        self._folder, self._open = folder, open_servers

    def __call__(self, content: bytes, config: str) -> Model:
        directory = Path(tempfile.mkdtemp(dir=self._folder)) / "m"
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.plan").write_bytes(content)
        (directory / "config.pbtxt").write_text(config)
        server = ModelServer(directory.parent, exit_timeout_secs=5)
        self.server = self._open.enter_context(server)
        self.server.load("m")
        return self.server.model("m")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serving]:
    with contextlib.ExitStack() as open_servers:
        yield Serving(tmp_path, open_servers)


def close_to(answer: Any, wanted: np.ndarray) -> None:
    """TF32 may be on: ten bits of mantissa."""
    np.testing.assert_allclose(answer["Y"], wanted, rtol=2e-2, atol=2e-2)


def test_every_batch_size_answers_as_onnxruntime_does(serve, plan, expected):
    """TRT-04, CFG-066: dynamic shapes over two profiles."""
    model = serve(plan, CONFIG + BOTH % 1)
    for count in (1, 3, 8, 9, 33, 64):
        sent = rows(count, count)
        close_to(model.infer({"X": sent}), expected(sent))


def test_shapes_that_no_profile_takes_are_the_callers_mistake(serve, plan):
    with pytest.raises(ServingError, match="max_batch_size|takes no batch"):
        serve(plan, SMALL).infer({"X": rows(9)})


def test_a_config_that_says_nothing_is_completed_from_the_engine(serve, plan, expected):
    """AUT-04: the larger of the two profiles gives the batch size."""
    model = serve(plan, 'backend: "tensorrt" ' + BOTH % 1)
    config = model.config()
    assert config["max_batch_size"] == 64
    assert "dynamic_batching" in config
    close_to(model.infer({"X": rows(40)}), expected(rows(40)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("TYPE_FP32", "TYPE_FP16", "is TYPE_FP32 in the engine, but data_type is TYPE_FP16"),
        ("[64]", "[65]", "has dims \\[64\\] in the engine, but \\[65\\]"),
        ("size: 64", "size: 65", "takes batches of 64 at most"),
        ('"X"', '"Z"', "allowed inputs are: X"),
    ],
)
def test_a_config_that_contradicts_the_engine_is_refused(serve, plan, old, new, words):
    """TRT-05."""
    with pytest.raises(ServingError, match=words):
        serve(plan, CONFIG.replace(old, new, 1) + BOTH % 1)


def test_cuda_graphs_answer_as_plain_runs_do(serve, plan, expected):
    """CFG-082: recorded for 1 and 8 rows, and for 8 rows with room for fewer."""
    bound = "graph_spec { batch_size: 8 graph_lower_bound { batch_size: 4 } }"
    for spec in ("", bound):
        cuda = f"optimization {{ cuda {{ graphs: true {spec} }} }}"
        model = serve(plan, SMALL + cuda)
        for count in (1, 2, 5, 8, 1):
            sent = rows(count, count)
            close_to(model.infer({"X": sent}), expected(sent))


@pytest.mark.parametrize(
    "options",
    [
        "optimization { priority: PRIORITY_MAX }",
        "optimization { cuda { output_copy_stream: true busy_wait_events: true } }",
        "optimization { input_pinned_memory { enable: false } }",
        PARAMETER % ("execution_context_allocation_strategy", "ON_PROFILE_CHANGE"),
        PARAMETER % ("instance_isolation", "process"),
    ],
)
def test_options_change_the_way_and_not_the_answer(serve, plan, expected, options):
    """TRT-03, CFG-081, CFG-082."""
    model = serve(plan, SMALL + options)
    close_to(model.infer({"X": rows(5)}), expected(rows(5)))


def test_instances_answer_side_by_side(serve, plan, expected):
    """TRT-04: two instances of one engine, each with stream and contexts of its own."""
    model = serve(plan, CONFIG + BOTH % 2 + " dynamic_batching { }")

    def ask(seed: int) -> None:
        sent = rows(1 + seed % 16, seed)
        close_to(model.infer({"X": sent}), expected(sent))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(200)))


def test_unloading_gives_the_memory_back(serve, plan, device):
    """Loaded and unloaded ten times: the device has as much free as after the first time."""
    serve(plan, CONFIG + BOTH % 2).infer({"X": rows(64)})
    free = []
    for _ in range(10):
        serve.server.unload("m")
        device.enter()
        free.append(device.free_bytes())
        serve.server.load("m")
        serve.server.model("m").infer({"X": rows(64)})
    assert free[-1] >= free[0] - (8 << 20)


def test_shape_tensors_and_their_batch_value(serve, engine, tmp_path):
    """CFG-035, TRT-04: X [n] becomes Y of the shape that S holds."""
    path = onnx_files.write(
        tmp_path / "reshape",
        [value("X", FLOAT, ["n"]), value("S", TensorProto.INT64, [2])],
        [value("Y", FLOAT, ["a", "b"])],
        [helper.make_node("Reshape", ["X", "S"], ["Y"])],
    )
    plan = engine(path, {"X": ((1,), (6,), (12,)), "S": ((1, 1), (2, 3), (12, 12))})
    config = """
    backend: "tensorrt"
    input { name: "X" data_type: TYPE_FP32 dims: [-1] }
    input { name: "S" data_type: TYPE_INT64 dims: [2] is_shape_tensor: true }
    output { name: "Y" data_type: TYPE_FP32 dims: [-1, -1] }
    """
    model = serve(plan, config)
    sent = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (3, 2), (6, 1)):
        answer = model.infer({"X": sent, "S": np.array(shape, np.int64)})
        np.testing.assert_array_equal(answer["Y"], sent.reshape(shape))


def test_outputs_whose_size_depends_on_the_data(serve, engine, library, tmp_path):
    """TRT-04: the positions of what is not zero."""
    if library == "tensorrt_rtx":
        pytest.skip("TensorRT-RTX has no NonZero in its ONNX parser")
    path = onnx_files.write(
        tmp_path / "nonzero",
        [value("X", FLOAT, ["n"])],
        [value("Y", TensorProto.INT64, [1, "k"])],
        [helper.make_node("NonZero", ["X"], ["Y"])],
    )
    plan = engine(path, {"X": ((1,), (8,), (100,))})
    config = """
    backend: "tensorrt"
    input { name: "X" data_type: TYPE_FP32 dims: [-1] }
    output { name: "Y" data_type: TYPE_INT64 dims: [1, -1] }
    """
    model = serve(plan, config)
    for size in (5, 100, 1):
        sent = (np.arange(size) % 3).astype(np.float32)
        answer = model.infer({"X": sent})
        np.testing.assert_array_equal(answer["Y"], np.array(np.nonzero(sent)))


@pytest.mark.parametrize("onnx_type", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_inputs_and_outputs(serve, engine, tmp_path, onnx_type):
    """TRT-04: FP16 and BF16 as they are, bit by bit."""
    path = onnx_files.write(
        tmp_path / "half",
        [value("X", onnx_type, ["n", 4])],
        [value("Y", onnx_type, ["n", 4])],
        [helper.make_node("Neg", ["X"], ["Y"])],
    )
    model = serve(engine(path, {"X": ((1, 4), (4, 4), (8, 4))}), 'backend: "tensorrt"')
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx_type)
    sent = np.arange(12).reshape(3, 4).astype(dtype)
    np.testing.assert_array_equal(model.infer({"X": sent})["Y"], -sent)


class TestContract(BackendContract):
    backend = "tensorrt"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls, plan: bytes, expected: Callable[[np.ndarray], np.ndarray]) -> Subject:
        def answers(sent: Arrays) -> Arrays:
            return {"Y": expected(sent["X"])}

        return Subject(
            config=SMALL,
            write=lambda directory: (directory / "model.plan").write_bytes(plan),
            inputs=lambda count: {"X": rows(count, count)},
            expected=answers,
            rtol=2e-2,
            atol=2e-2,
        )
