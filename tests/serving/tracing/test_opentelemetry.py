"""Mode opentelemetry: which spans there are, what is in them, where they hang (TRC-008)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serving.errors import BackendError, UnavailableError, UnsupportedError
from serving.options import ControlMode, ServerOptions, TelemetryOptions, TraceSettings
from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.server import ModelServer
from serving.tracing.context import TraceContext, read_context
from serving.tracing.opentelemetry import SpanSink
from serving.tracing.tracer import Tracer
from tests.serving.model_files import identity_request, write_ensemble, write_identity

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALLER = TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, "x=y")


class Traced:
    """A tracer whose spans stay here."""

    def __init__(self, *, rate: int = 1) -> None:
        options = TelemetryOptions(resource=(("service.name", "test"),))
        self._exporter = InMemorySpanExporter()
        settings = TraceSettings(("TIMESTAMPS",), rate, telemetry=options)
        self.tracer = Tracer(settings, SpanSink(options, self._exporter))

    def spans(self) -> list[ReadableSpan]:
        """Ends the tracer."""
        self.tracer.close()
        return list(self._exporter.get_finished_spans())


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        PARENT[:-1],
        PARENT.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        PARENT.replace("a", "g"),
    ],
)
def test_a_broken_context_is_none(header: str | None) -> None:
    assert read_context(header) is None


def test_a_context_is_read_with_its_state() -> None:
    assert read_context(PARENT, "x=y") == CALLER
    assert read_context(f"01{PARENT[2:]}-more", "x=y") == CALLER


def test_a_caller_that_traces_is_traced_whatever_the_rate_is() -> None:
    traced = Traced(rate=0)

    assert traced.tracer.is_on
    assert traced.tracer.sample("m") is None
    assert traced.tracer.sample("m", CALLER) is not None


def test_settings_cannot_be_changed_at_run_time() -> None:
    """HTTP-084."""
    with pytest.raises(UnsupportedError, match="cannot be changed while the server runs in mode"):
        Traced().tracer.change({"trace_rate": "2"})


def test_a_missing_sdk_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.resources", None)

    with pytest.raises(UnavailableError, match=r"pip install 'conch\[opentelemetry\]'"):
        Tracer(TraceSettings(("TIMESTAMPS",), 1, telemetry=TelemetryOptions()))


def test_a_request_is_told_in_spans_of_its_stages() -> None:
    traced = Traced()
    trace = traced.tracer.sample("m", CALLER)
    trace.stamp("HTTP_RECV_START", 1000)
    request = InferenceRequest("m", 3, "mine")
    times = request.times
    times.request_start_ns, times.queue_start_ns, times.compute_start_ns = 2000, 3000, 5000
    times.compute_input_end_ns, times.compute_output_start_ns, times.compute_end_ns = 6, 7, 9000
    trace.stamp("MY_CACHE_FILLED", 5500)  # TRC-010
    trace.record(request, InferenceResponse("m", 3, "mine"))
    trace.end()

    spans = {span.name: span for span in traced.spans()}

    assert set(spans) == {"InferRequest", "m", "queue", "compute"}
    top, model = spans["InferRequest"], spans["m"]
    assert {span.context.trace_id for span in spans.values()} == {CALLER.trace_id}
    assert {span.context.trace_state.to_header() for span in spans.values()} == {"x=y"}
    assert top.parent.span_id == CALLER.span_id
    assert model.parent.span_id == top.context.span_id
    assert spans["queue"].parent.span_id == spans["compute"].parent.span_id == model.context.span_id
    assert dict(model.attributes) == {
        "triton.model_name": "m",
        "triton.model_version": 3,
        "triton.trace_id": 1,
        "triton.trace_parent_id": 0,
        "triton.request_id": "mine",
    }
    assert model.resource.attributes["service.name"] == "test"
    assert spans["queue"].end_time - spans["queue"].start_time == 2000
    names = [event.name for event in spans["compute"].events]
    assert names == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    assert "MY_CACHE_FILLED" in [event.name for event in model.events]
    assert trace.context == f"00-{CALLER.trace_id:032x}-{model.context.span_id:016x}-01"


def test_the_spans_of_a_failed_request_say_why() -> None:
    traced = Traced()
    trace = traced.tracer.sample("m")
    request = InferenceRequest("m", 1)
    request.times.request_start_ns = 1
    trace.record(request, request.error_response(BackendError("it broke")))
    trace.end()

    assert {(span.name, span.status.description) for span in traced.spans()} == {
        ("InferRequest", "it broke"),
        ("m", "it broke"),
    }


async def test_every_step_of_an_ensemble_is_a_span_of_the_same_trace(tmp_path: Path) -> None:
    write_identity(tmp_path, "a")
    write_identity(tmp_path, "b")
    write_ensemble(tmp_path, "e", "a", "b")
    server = ModelServer(
        ServerOptions((tmp_path,), model_control_mode=ControlMode.EXPLICIT, load_models=("e",))
    )
    await server.start()
    traced = Traced()
    trace = traced.tracer.sample("e")
    request = identity_request("e")
    request.trace = trace

    response = await server.infer_async(request)
    trace.end()
    spans = await asyncio.to_thread(traced.spans)
    await server.stop()

    assert response.error is None
    by_id = {span.context.span_id: span for span in spans}
    tree = sorted(
        (span.name, by_id[span.parent.span_id].name if span.parent else "") for span in spans
    )
    assert tree == [
        ("InferRequest", ""),
        ("a", "e"),
        ("b", "e"),
        ("compute", "a"),
        ("compute", "b"),
        ("e", "InferRequest"),
        ("queue", "a"),
        ("queue", "b"),
    ]
    assert len({span.context.trace_id for span in spans}) == 1


def test_a_collector_that_takes_nothing_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("serving.tracing.opentelemetry.LAST_SEND_S", 0.05)
    stopped = threading.Event()

    class Hanging(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            stopped.wait(10)
            return SpanExportResult.FAILURE

        def shutdown(self) -> None:
            stopped.set()

    options = TelemetryOptions("http://away/v1/traces")
    tracer = Tracer(
        TraceSettings(("TIMESTAMPS",), 1, telemetry=options), SpanSink(options, Hanging())
    )
    trace = tracer.sample("m")
    trace.stamp("HTTP_RECV_START")
    trace.end()

    tracer.close()

    assert stopped.is_set()
    assert "the last traces are lost: http://away/v1/traces takes none" in caplog.text
