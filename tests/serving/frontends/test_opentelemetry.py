"""Traces on their way from a caller to a collector: headers in, OTLP over HTTP out (TRC-008)."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tritonclient.utils import InferenceServerException

from serving.options import FrontendOptions, ServerOptions, TelemetryOptions, TraceSettings
from serving.server_thread import ServerThread
from tests.serving.model_files import write_identity

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "x=y"}


class Collector(BaseHTTPRequestHandler):
    """Takes what is exported, as an OpenTelemetry collector does."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        for part in message.resource_spans:
            self.server.resources.append(
                {i.key: i.value.string_value for i in part.resource.attributes}
            )
            self.server.spans += [span for scope in part.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as made:
        made.spans, made.resources = [], []
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def tensor(api: Any) -> Any:
    item = api.InferInput("INPUT0", [1, 4], "FP32")
    item.set_data_from_numpy(np.ones((1, 4), np.float32))
    return item


def ask(server: ServerThread) -> None:
    """Every way in, each with the caller's context; one request without is not traced."""
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.ports.http}") as http:
        http.infer("m", [tensor(tritonclient.http)], request_id="http", headers=dict(HEADERS))
        http.infer("m", [tensor(tritonclient.http)], request_id="none")
        settings = http.get_trace_settings("m")
        assert (settings["trace_mode"], settings["bsp_max_queue_size"]) == ("opentelemetry", "2048")
        with pytest.raises(InferenceServerException, match="cannot be changed while the server"):
            http.update_trace_settings(settings={"trace_rate": "1"})
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports.grpc}") as grpc:
        grpc.infer("m", [tensor(tritonclient.grpc)], request_id="grpc", headers=dict(HEADERS))
        grpc.start_stream(lambda result, error: None, headers=dict(HEADERS))
        grpc.async_stream_infer("m", [tensor(tritonclient.grpc)], request_id="stream")
        grpc.stop_stream()


def test_requests_go_to_the_collector_as_part_of_their_callers_traces(
    tmp_path: Path, collector: ThreadingHTTPServer
) -> None:
    write_identity(tmp_path, "m")
    url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    telemetry = TelemetryOptions(url, (("service.name", "vision"),))
    server = ServerThread(
        ServerOptions((tmp_path,)),
        FrontendOptions(
            http_port=0,
            grpc_port=0,
            allow_metrics=False,
            trace=TraceSettings(("TIMESTAMPS",), rate=0, telemetry=telemetry),
        ),
    )
    server.start(30)
    try:
        ask(server)
    finally:
        server.stop()  # sends what is left

    assert {item["service.name"] for item in collector.resources} == {"vision"}
    spans = collector.spans
    assert {(span.trace_id.hex(), span.trace_state) for span in spans} == {(TRACE, "x=y")}
    tops = {span.span_id: span for span in spans if span.name == "InferRequest"}
    assert {span.parent_span_id.hex() for span in tops.values()} == {SPAN}
    models = {
        attribute.value.string_value: span
        for span in spans
        for attribute in span.attributes
        if attribute.key == "triton.request_id"
    }
    assert set(models) == {"http", "grpc", "stream"}
    names = [event.name for event in tops[models["http"].parent_span_id].events]
    assert names == [
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
        "HTTP_SEND_END",
    ]
    compute = [span for span in spans if span.name == "compute"]
    assert {span.parent_span_id for span in compute} == {span.span_id for span in models.values()}
