"""`python -m benchmarks.load_cycles`: what loading and unloading leaves behind.

Loads, asks and unloads an identity model and an ONNX model 1,000 times each and a Python model 200
times, each kind in a server of its own, and compares what the server holds after a tenth of the
cycles with what it holds at the end. Exit status 1 if memory has grown by more than 5 %, or a
thread, process or file descriptor is left; the shared memory of Python models is a descriptor.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from benchmarks import processes
from benchmarks.processes import Holdings

MODEL = "m"
_MOST_GROWTH = 0.05
_WAIT_S = 30.0
_SAMPLES = 10
_TENSORS = """\
max_batch_size: 0
input { name: "X" data_type: TYPE_FP32 dims: [ 16 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 16 ] }
"""
_PYTHON = """\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
            for r in requests
        ]
"""


@dataclass(frozen=True, slots=True)
class Result:
    kind: str
    cycles: int
    seconds: float
    early: Holdings
    late: Holdings
    loaded_kib: int
    """RSS of all children while the model was loaded, at most."""

    @property
    def growth(self) -> float:
        return self.late.rss_kib / self.early.rss_kib - 1

    @property
    def leftovers(self) -> list[str]:
        kinds = ("threads", "descriptors", "processes")
        pairs = {kind: (getattr(self.early, kind), getattr(self.late, kind)) for kind in kinds}
        return [f"{kind} {then} > {now}" for kind, (then, now) in pairs.items() if now > then]

    @property
    def is_clean(self) -> bool:
        return self.growth <= _MOST_GROWTH and not self.leftovers

    def text(self) -> str:
        rss = f"{self.early.rss_kib / 1024:.1f} > {self.late.rss_kib / 1024:.1f} MiB"
        return (
            f"{self.kind:9} {self.cycles:5} cycles {self.seconds:6.1f} s  RSS {rss} "
            f"({self.growth:+.1%})  {self.late.threads} threads, {self.late.descriptors} "
            f"descriptors, {self.late.processes} processes; left: "
            f"{', '.join(self.leftovers) or 'nothing'}; RSS of all children while it is loaded "
            f"{self.loaded_kib / 1024:.1f} MiB, after the last unload "
            f"{self.late.children_rss_kib / 1024:.1f} MiB"
        )


class Client:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)

    def cycle(self, on_loaded: Callable[[], None]) -> None:
        self._post(f"/v2/repository/models/{MODEL}/load")
        tensor = {"name": "X", "shape": [16], "datatype": "FP32", "data": [0.5] * 16}
        answer = self._post(f"/v2/models/{MODEL}/infer", {"inputs": [tensor]})
        if answer["outputs"][0]["data"] != [0.5] * 16:
            raise RuntimeError(f"wrong answer: {answer}")
        on_loaded()
        self._post(f"/v2/repository/models/{MODEL}/unload")
        deadline = time.monotonic() + _WAIT_S
        while self._post("/v2/repository/index")[0]["state"] != "UNAVAILABLE":
            if time.monotonic() > deadline:
                raise TimeoutError("the model did not unload")
            time.sleep(0.001)

    def close(self) -> None:
        self._connection.close()

    def _post(self, path: str, body: object = None) -> Any:
        self._connection.request("POST", path, json.dumps(body or {}))
        response = self._connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: HTTP {response.status}: {text.decode()}")
        return json.loads(text) if text else None


def measure(kind: str, cycles: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        _WRITERS[kind](Path(folder) / MODEL)
        with processes.conch(Path(folder), "--model-control-mode=explicit") as server:
            client = Client(server.http_port)
            started = time.monotonic()
            warm_up = max(cycles // 10, 2)
            loaded: list[int] = []
            early = _run(client, server, warm_up, loaded)
            late = _run(client, server, cycles - warm_up, loaded)
            client.close()
            seconds = time.monotonic() - started
            return Result(kind, cycles, seconds, early, late, max(loaded))


def _run(client: Client, server: processes.Server, cycles: int, loaded_kib: list[int]) -> Holdings:
    """Run the cycles; the holdings are those of the last ones, memory is their median."""
    samples = []
    for number in range(cycles):
        client.cycle(lambda: loaded_kib.append(server.holdings().children_rss_kib))
        if number >= cycles - _SAMPLES:
            samples.append(server.holdings())
    return Holdings(
        rss_kib=int(statistics.median(item.rss_kib for item in samples)),
        threads=min(item.threads for item in samples),
        descriptors=min(item.descriptors for item in samples),
        processes=min(item.processes for item in samples),
        children_rss_kib=min(item.children_rss_kib for item in samples),
    )


def _write_identity(model: Path) -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "identity"\n' + _TENSORS)


def _write_onnx(model: Path) -> None:
    (model / "1").mkdir(parents=True)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16]) for name in ("X", "Y")]
    graph = helper.make_graph([helper.make_node("Identity", ["X"], ["Y"])], "g", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 20)]
    file = helper.make_model(graph, opset_imports=opset, ir_version=10)
    onnx.save(file, str(model / "1" / "model.onnx"))


def _write_python(model: Path) -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "python"\n' + _TENSORS)
    (model / "1" / "model.py").write_text(_PYTHON)


_WRITERS: dict[str, Callable[[Path], None]] = {
    "identity": _write_identity,
    "onnx": _write_onnx,
    "python": _write_python,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=1000, help="of the Python model a fifth")
    parser.add_argument("--kind", choices=sorted(_WRITERS), action="append")
    options = parser.parse_args()
    is_clean = True
    for kind in options.kind or _WRITERS:
        result = measure(kind, options.cycles // 5 if kind == "python" else options.cycles)
        sys.stdout.write(result.text() + "\n")
        sys.stdout.flush()
        is_clean &= result.is_clean
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
