"""One model that takes 5 ms or more for each runtime: as a file for the served backend, and bare.

A runtime is imported when its case is written, so that those which are missing do no harm.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Run = Callable[[Array], object]
WIDTH, HIDDEN, LAYERS = 256, 1024, 6
_PYTHON = """
import numpy as np
import triton_python_backend_utils as pb_utils
from pathlib import Path
class TritonPythonModel:
    def initialize(self, arguments):
        path = Path(arguments["model_repository"], arguments["model_version"], "weights.npz")
        self.weights = list(np.load(path).values())
    def execute(self, requests):
        return [self.answer(request) for request in requests]
    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        for weight in self.weights:
            x = np.maximum(x @ weight, 0)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x)])
"""


@dataclass(frozen=True, slots=True)
class Case:
    backend: str
    module: str
    """Of the runtime."""
    write: Callable[[Path, list[Array]], Run]
    """Puts the model into a version folder and returns the bare runtime with it."""
    config: str = ""
    rows: int = 128
    tensors: tuple[str, str] = ("INPUT0", "OUTPUT0")
    width: int = WIDTH
    """Of the output."""


def weights() -> list[Array]:
    sizes = [WIDTH, *[HIDDEN] * (LAYERS - 1), WIDTH]
    random = np.random.default_rng(0)
    return [
        (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for shape in zip(sizes, sizes[1:], strict=False)
    ]


def write_onnx(path: Path, layers: list[Array]) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, name = [], "INPUT0"
    for index in range(len(layers)):
        last = "OUTPUT0" if index == len(layers) - 1 else f"r{index}"
        nodes.append(helper.make_node("MatMul", [name, f"w{index}"], [f"m{index}"]))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [last]))
        name = last
    ends = [
        helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", WIDTH])
        for end in ("INPUT0", "OUTPUT0")
    ]
    values = [numpy_helper.from_array(layer, f"w{i}") for i, layer in enumerate(layers)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], values)
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def onnxruntime_case(folder: Path, layers: list[Array]) -> Run:
    onnxruntime = import_module("onnxruntime")

    write_onnx(folder / "model.onnx", layers)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    return lambda rows: session.run(["OUTPUT0"], {"INPUT0": rows})


def openvino_case(folder: Path, layers: list[Array]) -> Run:
    # Where this package can be imported, importing openvino reports that to its maker.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    openvino = import_module("openvino")

    write_onnx(folder / "model.onnx", layers)
    properties = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    compiled = openvino.Core().compile_model(folder / "model.onnx", "CPU", properties)
    request = compiled.create_infer_request()
    return lambda rows: request.infer({"INPUT0": rows}, share_inputs=True)


def pytorch_case(folder: Path, layers: list[Array]) -> Run:
    torch = import_module("torch")

    torch.set_num_threads(1)
    net = torch.nn.Sequential()
    for layer in layers:
        linear = torch.nn.Linear(*layer.shape, bias=False)
        linear.weight = torch.nn.Parameter(torch.from_numpy(layer.T.copy()))
        net.extend([linear, torch.nn.ReLU()])
    traced = torch.jit.trace(net.eval(), torch.zeros(1, WIDTH))
    traced.save(str(folder / "model.pt"))
    loaded = torch.jit.load(str(folder / "model.pt"))

    def run(rows: Array) -> object:
        with torch.inference_mode():
            return loaded(torch.from_numpy(rows)).numpy()

    return run


def fil_case(folder: Path, layers: list[Array]) -> Run:
    treelite = import_module("treelite")

    builder_module = treelite.model_builder
    random = np.random.default_rng(1)
    builder = builder_module.ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=builder_module.Metadata(
            num_feature=WIDTH,
            task_type="kRegressor",
            average_tree_output=False,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=builder_module.TreeAnnotation(
            num_tree=200, target_id=[0] * 200, class_id=[0] * 200
        ),
        postprocessor=builder_module.PostProcessorFunc(name="identity"),
        base_scores=[0.0],
    )
    inner = 2**8 - 1
    for _ in range(200):
        builder.start_tree()
        for node in range(2 * inner + 1):
            builder.start_node(node)
            if node < inner:
                builder.numerical_test(
                    feature_id=int(random.integers(WIDTH)),
                    threshold=float(random.standard_normal()),
                    default_left=True,
                    opname="<",
                    left_child_key=2 * node + 1,
                    right_child_key=2 * node + 2,
                )
            else:
                builder.leaf(float(random.standard_normal()))
            builder.end_node()
        builder.end_tree()
    model = builder.commit()
    model.serialize(str(folder / "checkpoint.tl"))
    return lambda rows: treelite.gtil.predict(model, rows, nthread=1)


def tensorflow_case(folder: Path, layers: list[Array]) -> Run:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow: Any = import_module("tensorflow")
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)

    class Net(tensorflow.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.layers = [tensorflow.constant(layer) for layer in layers]

        @tensorflow.function(  # type: ignore[untyped-decorator]
            input_signature=[tensorflow.TensorSpec([None, WIDTH], tensorflow.float32, "INPUT0")]
        )
        def __call__(self, rows: Any) -> dict[str, Any]:
            for layer in self.layers:
                rows = tensorflow.nn.relu(rows @ layer)
            return {"OUTPUT0": rows}

    net = Net()
    path = str(folder / "model.savedmodel")
    tensorflow.saved_model.save(net, path, signatures=net.__call__)
    loaded = tensorflow.saved_model.load(path)
    signature = loaded.signatures["serving_default"]

    def run(rows: Array) -> object:
        assert loaded is not None  # its signatures do not keep it
        return signature(INPUT0=tensorflow.constant(rows))["OUTPUT0"].numpy()

    return run


def dali_case(folder: Path, layers: list[Array]) -> Run:
    """Rows are not multiplied with matrices there: steps of arithmetic take as long."""
    fn: Any = import_module("nvidia.dali.fn")
    dali_math: Any = import_module("nvidia.dali.math")
    pipeline_type: Any = import_module("nvidia.dali.pipeline").Pipeline

    def build(batch_size: int) -> Any:
        made = pipeline_type(
            batch_size=batch_size, num_threads=1, device_id=None, prefetch_queue_depth=1
        )
        with made:
            rows = fn.external_source(name="INPUT0", device="cpu", layout="C")
            for _ in range(2 * len(layers)):
                rows = dali_math.sin(dali_math.sqrt(rows * rows) + dali_math.exp(-rows))
            made.set_outputs(rows)
        return made

    build(1).serialize(filename=str(folder / "model.dali"))
    pipeline = build(128)
    pipeline.build()

    def run(rows: Array) -> object:
        pipeline.feed_input("INPUT0", rows)
        return pipeline.run()[0].as_array()

    return run


def python_case(folder: Path, layers: list[Array]) -> Run:
    (folder / "model.py").write_text(_PYTHON)
    np.savez(folder / "weights.npz", *layers)

    def run(rows: Array) -> object:
        for layer in layers:
            rows = np.maximum(rows @ layer, 0)
        return rows

    return run


def _parameters(**values: str) -> str:
    texts = (f'key: "{key}" value {{ string_value: "{value}" }}' for key, value in values.items())
    return "".join(f"parameters {{ {text} }}\n" for text in texts)


CASES = (
    Case("onnxruntime", "onnxruntime", onnxruntime_case, _parameters(intra_op_thread_count="1")),
    Case("pytorch", "torch", pytorch_case),
    Case(
        "openvino",
        "openvino",
        openvino_case,
        'default_model_filename: "model.onnx"\n' + _parameters(INFERENCE_NUM_THREADS="1"),
    ),
    Case(
        "fil",
        "treelite",
        fil_case,
        _parameters(model_type="treelite_checkpoint", nthread="1"),
        rows=1024,
        tensors=("input__0", "output__0"),
        width=1,
    ),
    Case(
        "tensorflow",
        "tensorflow",
        tensorflow_case,
        'platform: "tensorflow_savedmodel"\n'
        + _parameters(TF_NUM_INTRA_THREADS="1", TF_NUM_INTER_THREADS="1"),
    ),
    Case("dali", "nvidia.dali", dali_case),
    Case("python", "numpy", python_case),
)
