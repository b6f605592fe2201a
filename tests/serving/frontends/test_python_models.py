"""Python models through the doors: readiness and metrics of their own (PB-008, PB-051)."""

from __future__ import annotations

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


@pytest.fixture(scope="module")
def python_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("models")
    write_model(root, "m", source_of(BODY, HOOKS))
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
