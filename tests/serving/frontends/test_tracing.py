"""Traces of a real server, over HTTP, gRPC and a stream, with an ensemble: TRC-005..007, HTTP-018,
GRPC-015."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.serving.frontends.models import write_repository
from tests.serving.frontends.process import ServerProcess

ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
  step {
    model_name: "identity" model_version: -1
    input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" }
  }
}
"""
CORE = [
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
]


def tensor(api: Any, name: str = "INPUT0") -> Any:
    item = api.InferInput(name, [1, 2], "FP32")
    item.set_data_from_numpy(np.ones((1, 2), np.float32))
    return item


def ask_everybody(server: ServerProcess) -> None:
    with tritonclient.http.InferenceServerClient(server.http) as http:
        http.infer("identity", [tensor(tritonclient.http)], request_id="by http")
        http.infer("ensemble", [tensor(tritonclient.http, "IN")], request_id="by ensemble")
        http.update_trace_settings("half", {"trace_level": ["OFF"]})
        half = tritonclient.http.InferInput("INPUT0", [1], "FP16")
        half.set_data_from_numpy(np.ones(1, np.float16))
        http.infer("half", [half], request_id="not traced")
    with tritonclient.grpc.InferenceServerClient(server.grpc) as grpc:
        grpc.infer("identity", [tensor(tritonclient.grpc)], request_id="by grpc")
        answers: list[Any] = []
        grpc.start_stream(lambda result, error: answers.append(error))
        grpc.async_stream_infer("identity", [tensor(tritonclient.grpc)], request_id="by stream")
        grpc.stop_stream()
        assert answers == [None]
        with pytest.raises(InferenceServerException, match="unknown model : nope"):
            grpc.update_trace_settings("nope", {"trace_rate": "1"})
        with pytest.raises(InferenceServerException, match="takes one value"):
            grpc.update_trace_settings(settings={"trace_rate": ["1", "2"]})
        changed = grpc.update_trace_settings(settings={"trace_rate": "7"}, as_json=True)
        assert changed["settings"]["trace_rate"]["value"] == ["7"]
        cleared = grpc.update_trace_settings(settings={"trace_rate": None}, as_json=True)
        assert cleared["settings"]["trace_rate"]["value"] == ["1"]


def test_traces_say_when_every_request_was_where(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "repository")
    (repository / "ensemble" / "1").mkdir(parents=True)
    (repository / "ensemble" / "config.pbtxt").write_text(ENSEMBLE)
    file = tmp_path / "trace.json"
    with ServerProcess(
        (
            f"--model-repository={repository}",
            f"--trace-config=triton,file={file}",
            "--trace-config=rate=1",
            "--trace-config=level=TIMESTAMPS",
            "--trace-config=level=TENSORS",
        )
    ) as server:
        ask_everybody(server)

    heads: dict[int, dict[str, Any]] = {}
    moments: dict[int, list[str]] = defaultdict(list)
    for entry in json.loads(file.read_text()):
        if "model_name" in entry:
            heads[entry["id"]] = entry
        for item in entry.get("timestamps", ()):
            moments[entry["id"]].append(item["name"])
    by_request = {head["request_id"]: head for head in heads.values() if "parent_id" not in head}
    http_names = ["HTTP_RECV_START", "HTTP_RECV_END", *CORE, "HTTP_SEND_START", "HTTP_SEND_END"]
    assert set(by_request) == {"by http", "by ensemble", "by grpc", "by stream"}
    assert moments[by_request["by http"]["id"]] == http_names
    grpc_names = [name for name in moments[by_request["by grpc"]["id"]] if name not in CORE]
    assert grpc_names == [
        "GRPC_WAITREAD_START",
        "GRPC_WAITREAD_END",
        "GRPC_SEND_START",
        "GRPC_SEND_END",
    ]
    (child,) = [head for head in heads.values() if "parent_id" in head]
    assert child["parent_id"] == by_request["by ensemble"]["id"]
    assert child["model_name"] == "identity"
    assert moments[child["id"]] == CORE
