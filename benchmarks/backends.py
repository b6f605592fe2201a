"""`python -m benchmarks.backends`: what serving costs on top of each runtime.

For each installed backend one model that takes 5 ms or more: the bare runtime in a loop, the
served model in this process (the core alone), and over HTTP from another process. Every one has one
thread of the runtime and the same rows in each request; served, two requests are in flight, so that
the next is there when one has ended. Rounds alternate; the figures are medians of the rounds'
ratios, served / bare: rows per second, and rows per second of CPU time, which other work on the
machine disturbs less. The target is 0.90.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from numpy.typing import NDArray

from benchmarks.load import Load, over_http
from benchmarks.processes import Server, conch, tree_cpu_s
from serving.in_process import Model, ModelServer

Array = NDArray[np.float32]
Run = Callable[[Array], object]
WIDTH, HIDDEN, LAYERS = 256, 1024, 6
IN_FLIGHT = 2
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
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
    Case("python", "numpy", python_case),
)


def config_of(case: Case) -> str:
    given, made = case.tensors
    return f"""name: "{case.backend}" backend: "{case.backend}" max_batch_size: 4096
input {{ name: "{given}" data_type: TYPE_FP32 dims: [ {WIDTH} ] }}
output {{ name: "{made}" data_type: TYPE_FP32 dims: [ {case.width} ] }}
instance_group [{{ kind: KIND_CPU count: 1 }}]
{case.config}"""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows for each second, of the clock and of CPU time."""

    by_clock: float
    by_cpu: float

    def of(self, bare: Rate) -> Rate:
        return Rate(self.by_clock / bare.by_clock, self.by_cpu / bare.by_cpu)


def bare_rate(run: Run, rows: Array, seconds: float) -> Rate:
    run(rows)
    count, begin, begin_cpu = 0, time.perf_counter(), time.process_time()
    while (now := time.perf_counter()) < begin + seconds:
        run(rows)
        count += 1
    done = count * len(rows)
    return Rate(done / (now - begin), done / (time.process_time() - begin_cpu))


def core_rate(model: Model, name: str, rows: Array, seconds: float) -> Rate:
    """This process is the server: its CPU time, and that of instance processes."""
    inputs: dict[str, Any] = {name: rows}
    model.infer(inputs)
    waiting = deque(model.submit(inputs) for _ in range(IN_FLIGHT))
    count, begin, begin_cpu = 0, time.perf_counter(), tree_cpu_s()
    while (now := time.perf_counter()) < begin + seconds:
        waiting.popleft().result()
        waiting.append(model.submit(inputs))
        count += 1
    cpu_s = tree_cpu_s() - begin_cpu
    for answer in waiting:
        answer.result()
    done = count * len(rows)
    return Rate(done / (now - begin), done / cpu_s)


def http_rate(server: Server, load: Load, seconds: float) -> Rate:
    begin_cpu = server.cpu_s()
    result = asyncio.run(over_http(server.http_port, load, IN_FLIGHT, seconds))
    requests = result.requests + IN_FLIGHT  # the first of each connection is not timed
    cpu_s = server.cpu_s() - begin_cpu
    return Rate(result.rate * load.shape[0], requests * load.shape[0] / cpu_s)


def measure(case: Case, root: Path, seconds: float, rounds: int) -> str:
    folder = root / case.backend / "1"
    folder.mkdir(parents=True)
    run = case.write(folder, weights())
    (root / case.backend / "config.pbtxt").write_text(config_of(case))
    rows = np.random.default_rng(2).standard_normal((case.rows, WIDTH)).astype(np.float32)
    load = Load(case.backend, (case.rows, WIDTH), *case.tensors, raw=rows.tobytes())
    cores, https, bares = [], [], []
    options = ("--model-control-mode=explicit", f"--load-model={case.backend}")
    # One after the other: an idle server beside it would still take part in the measurement.
    with ModelServer(root) as here:
        model = here.load(case.backend)
        for _ in range(rounds):
            bares.append(bare_rate(run, rows, seconds))
            cores.append(core_rate(model, case.tensors[0], rows, seconds).of(bares[-1]))
    with conch(root, *options) as server:
        for _ in range(rounds):
            bares.append(bare_rate(run, rows, seconds))
            https.append(http_rate(server, load, seconds).of(bares[-1]))
    shutil.rmtree(root / case.backend)
    bare = median(bares)
    served = median(cores), median(https)
    cells = [f"{rate.by_clock:>6.2f} {rate.by_cpu:>6.2f}" for rate in served]
    took_ms = case.rows / bare.by_cpu * 1000
    return f"{case.backend:<12} {case.rows:>5} {took_ms:>8.1f}  {cells[0]}  {cells[1]}"


def median(rates: list[Rate]) -> Rate:
    return Rate(
        statistics.median(rate.by_clock for rate in rates),
        statistics.median(rate.by_cpu for rate in rates),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("backends", nargs="*", help="default: all that are installed")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each cell")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    heads = f"{'core':>6} {'CPU':>6}  {'HTTP':>6} {'CPU':>6}"
    print(f"{'backend':<12} {'rows':>5} {'ms a run':>8}  {heads}")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if options.backends and case.backend not in options.backends:
                continue
            if find_spec(case.module) is None:
                print(f"{case.backend:<12} {case.module} is not installed")
                continue
            print(measure(case, Path(folder), options.seconds, options.rounds), flush=True)


if __name__ == "__main__":
    if not _ONE_THREAD.items() <= os.environ.items():  # anew: runtimes read it when imported
        arguments = [sys.executable, "-m", "benchmarks.backends", *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | _ONE_THREAD)
    uvloop.install()
    main()
