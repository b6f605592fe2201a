"""A server with a repository of its own, as an HTTP client and the owner of the files see it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import httpx

from serving.options import FrontendOptions
from serving.server_thread import ServerThread

ANY_PORTS = FrontendOptions(http_port=0, grpc_port=0, metrics_port=0)
PID_MODEL = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            pid = np.array([os.getpid()], dtype=np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)]) for _ in requests]
"""
BAD_START = """
    class TritonPythonModel:
        def initialize(self, args):
            raise RuntimeError("the weights are for another model")
        def execute(self, requests):
            return []
"""
PYTHON = """
backend: "python"
max_batch_size: 0
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
OVERRIDE: dict[str, Any] = {
    "backend": "identity",
    "max_batch_size": 2,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
}


class Client:
    """A server over `root` that also serves the model "bystander"."""

    def __init__(self, thread: ServerThread) -> None:
        self._thread = thread
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{thread.ports.http}/v2", timeout=30)
        self.root: Path = Path(thread.options.model_repositories[0])

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, body: object = None, *, raw: bytes | None = None) -> httpx.Response:
        content = raw if raw is not None else json.dumps(body or {}).encode()
        return self._http.post(path, content=content)

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path)

    def load(self, name: str, **parameters: object) -> httpx.Response:
        body = {"parameters": parameters} if parameters else {}
        return self.post(f"/repository/models/{name}/load", body)

    def unload(self, name: str) -> httpx.Response:
        return self.post(f"/repository/models/{name}/unload")

    def infer(self, name: str, version: str = "") -> httpx.Response:
        path = f"/models/{name}" + (f"/versions/{version}" if version else "")
        tensor = {"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
        return self.post(f"{path}/infer", {"inputs": [tensor]})

    def pid(self, name: str, version: int) -> int:
        tensor = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [0]}
        answer = self.post(f"/models/{name}/versions/{version}/infer", {"inputs": [tensor]})
        return int(answer.json()["outputs"][0]["data"][0])

    def rows(self, name: str, body: object = None) -> list[tuple[str, str, str]]:
        return [
            (row.get("version", ""), row.get("state", ""), row.get("reason", ""))
            for row in self.post("/repository/index", body).json()
            if row["name"] == name
        ]

    def ready_versions(self, name: str) -> list[str]:
        return [version for version, state, _ in self.rows(name) if state == "READY"]

    def requests_at_work(self, name: str) -> int:
        return self._thread.invoke(lambda: self._thread.server.model(name).inflight_count)

    def is_unharmed(self) -> bool:
        return (
            self.get("/health/live").status_code == 200
            and self.infer("bystander").status_code == 200
        )


def write_python(root: Path, name: str, source: str, *versions: int, extra: str = "") -> Path:
    model = root / name
    for version in versions:
        (model / str(version)).mkdir(parents=True, exist_ok=True)
        (model / str(version) / "model.py").write_text(textwrap.dedent(source))
    (model / "config.pbtxt").write_text(PYTHON + extra)
    return model
