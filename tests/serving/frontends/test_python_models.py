"""Python models through the doors: readiness and metrics of their own (PB-008, PB-051)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from tests.serving.backends.python.serving_models import source_of, write_model
from tests.serving.frontends.process import ServerProcess

BODY = """
self.seen.increment(1)
self.ready = bool(value_in(requests[0])[0])
return [ok()]
"""
HOOKS = """
    def initialize(self, args):
        family = pb_utils.MetricFamily("seen_total", "Seen", pb_utils.MetricFamily.COUNTER)
        self.seen = family.Metric({"model": "m"})
        self.ready = True

    async def is_ready(self):
        return self.ready
"""

CACHED = """
    def initialize(self, args):
        gauge = pb_utils.MetricFamily.GAUGE
        blocks = pb_utils.MetricFamily("nv_trt_llm_kv_cache_block_metrics", "Blocks", gauge)
        self.blocks = []
        for kind, value in (("max", 200), ("used", 50), ("tokens_per", 64)):
            labels = {"kv_cache_block_type": kind, "model": "kv", "version": "1"}
            self.blocks.append(blocks.Metric(labels))
            self.blocks[-1].set(value)
        share = pb_utils.MetricFamily("vllm:kv_cache_usage_perc", "Share in use", gauge)
        self.share = share.Metric({"model": "kv_share"})
        self.share.set(0.5)
"""


@pytest.fixture(scope="module")
def python_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("models")
    write_model(root, "m", source_of(BODY, HOOKS))
    write_model(root, "kv", source_of("return [array_ok(value_in(r)) for r in requests]", CACHED))
    write_model(root, "kv_share", source_of("return [array_ok(value_in(r)) for r in requests]"))
    with ServerProcess((f"--model-repository={root}",)) as server:
        yield server


def infer(server: ServerProcess, value: float) -> None:
    item = httpclient.InferInput("IN", [1], "FP32")
    item.set_data_from_numpy(np.array([value], np.float32))
    with closing(httpclient.InferenceServerClient(server.http)) as client:
        client.infer("m", [item])


def test_pb_008_both_doors_ask_the_model_whether_it_is_ready(python_server: ServerProcess):
    with (
        closing(httpclient.InferenceServerClient(python_server.http)) as http,
        closing(grpcclient.InferenceServerClient(python_server.grpc)) as grpc,
    ):
        for value in (1.0, 0.0, 1.0):
            infer(python_server, value)
            assert http.is_model_ready("m") is bool(value)
            assert grpc.is_model_ready("m") is bool(value)
            assert http.is_server_ready()


def test_pb_051_the_metrics_port_shows_them_after_the_servers_own(python_server: ServerProcess):
    infer(python_server, 1.0)
    page = httpx.get(f"http://{python_server.metrics}/metrics").text

    assert "# HELP seen_total Seen\n# TYPE seen_total counter\n" in page
    assert 'seen_total{model="m"} ' in page
    assert page.startswith("# HELP nv_")


@pytest.mark.parametrize("way", ["infer", "generate", "generate_stream"])
def test_http_057_who_asks_for_it_is_told_how_full_the_kv_cache_is(
    python_server: ServerProcess, way: str
):
    def ask(model: str, wanted: str | None) -> str | None:
        tensor = {"name": "IN", "shape": [1], "datatype": "FP32", "data": [1.0]}
        body = {"inputs": [tensor]} if way == "infer" else {"IN": 1.0}
        headers = {} if wanted is None else {"Endpoint-Load-Metrics-Format": wanted}
        address = f"http://{python_server.http}/v2/models/{model}/{way}"
        answer = httpx.post(address, json=body, headers=headers)
        assert answer.status_code == 200
        return answer.headers.get("endpoint-load-metrics")

    both = "named_metrics.kv_cache_utilization=0.25, named_metrics.max_token_capacity=12800"
    assert ask("kv", "text") == f"TEXT {both}"
    told = ask("kv", "json")
    assert told is not None
    assert told.startswith("JSON ")
    assert json.loads(told[5:]) == {
        "named_metrics": {"kv_cache_utilization": 0.25, "max_token_capacity": 12800.0}
    }
    assert ask("kv_share", "text") == "TEXT named_metrics.kv_cache_utilization=0.5"
    # Nothing to tell, or nobody asks in a form that there is: the answer is as ever.
    assert ask("m", "text") is None
    assert ask("kv", "xml") is None
    assert ask("kv", None) is None


def test_http_057_an_answer_whose_head_is_known_tells_it_too(python_server: ServerProcess):
    text = json.dumps(
        {
            "inputs": [
                {
                    "name": "IN",
                    "shape": [1],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 4},
                }
            ],
            "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
        }
    ).encode()
    body = text + np.ones(1, np.float32).tobytes()
    length = {"Inference-Header-Content-Length": str(len(text))}
    asks = {"Endpoint-Load-Metrics-Format": "text"}
    told = []
    with httpx.Client() as client:
        for more in ({}, {}, asks, {}, asks):
            address = f"http://{python_server.http}/v2/models/kv/infer"
            answer = client.post(address, content=body, headers=length | more)
            assert answer.content.endswith(np.ones(1, np.float32).tobytes())
            told.append("endpoint-load-metrics" in answer.headers)

    assert told == [False, False, True, False, True]
