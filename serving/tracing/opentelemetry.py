"""Sends traces to an OpenTelemetry collector, over OTLP/HTTP, through the OpenTelemetry SDK.

The SDK is an optional extra and is imported when this mode is chosen. A trace becomes spans when
it has ended; the SDK's own thread batches and sends them. `put` and `close` belong to the loop
thread, `close` to any. Source: spec TRC-008.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from serving.errors import UnavailableError
from serving.options import TelemetryOptions
from serving.tracing.context import new_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from serving.tracing.context import Spans
    from serving.tracing.trace import Trace

logger = logging.getLogger(__name__)

LAST_SEND_S = 3.0
_COMPUTE_EVENTS = ("COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
_TOP_PREFIXES = ("HTTP_", "GRPC_", "INFER_RESPONSE_COMPLETE")
_Stamps = Sequence[tuple[str, int]]


class SpanSink:
    """Takes ended traces. `exporter`: where to, instead of the collector of the options."""

    def __init__(self, options: TelemetryOptions, exporter: SpanExporter | None = None) -> None:
        """Raises: UnavailableError where the SDK is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise UnavailableError(
                f"trace mode opentelemetry needs the OpenTelemetry SDK ({error}): install it with "
                "pip install 'conch[opentelemetry]', or take mode triton"
            ) from error
        self._resource = Resource.create(dict(options.resource))
        self._url = options.url
        self._exporter = exporter or OTLPSpanExporter(options.url)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=options.max_queue_size,
            schedule_delay_millis=options.schedule_delay_ms,
            max_export_batch_size=options.max_export_batch_size,
        )

    def __repr__(self) -> str:
        return f"<SpanSink {self._url}>"

    def put(self, trace: Trace) -> None:
        if trace.spans is not None:
            for span in _spans(trace, trace.spans, self._resource):
                self._processor.on_end(span)

    def close(self) -> None:
        """Blocks until what is left has been sent; a collector that is away must not hold up the
        end for longer than a moment.
        """
        ending = threading.Thread(target=self._processor.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(LAST_SEND_S)
        if ending.is_alive():
            logger.warning("the last traces are lost: %s takes none", self._url)
            self._exporter.shutdown()


def _spans(trace: Trace, ids: Spans, resource: Any) -> Iterator[ReadableSpan]:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
    from opentelemetry.trace.status import Status, StatusCode

    state = TraceState.from_header([ids.state]) if ids.state else TraceState()
    # Stamps are monotonic, spans are told in the time of day.
    shift_ns = time.time_ns() - time.monotonic_ns()
    scope = InstrumentationScope("conch")
    status = Status(StatusCode.ERROR, trace.error) if trace.error else Status()

    def context(span_id: int) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(
            ids.trace_id, span_id, is_remote=False, trace_flags=flags, trace_state=state
        )

    def span(name: str, span_id: int, parent_id: int, stamps: _Stamps, **more: Any) -> ReadableSpan:
        return ReadableSpan(
            name,
            context(span_id),
            context(parent_id) if parent_id else None,
            resource,
            events=[Event(item, timestamp=moment + shift_ns) for item, moment in stamps],
            kind=SpanKind.SERVER,
            start_time=min(moment for _, moment in stamps) + shift_ns,
            end_time=max(moment for _, moment in stamps) + shift_ns,
            instrumentation_scope=scope,
            **more,
        )

    for name, stamps in _parts(trace):
        yield span(name, new_id(), ids.model_id, stamps)
    above_id = ids.top_id or ids.parent_id
    stamps = [item for item in trace.timestamps if _is_of_model(item[0])]
    if stamps:
        attributes: dict[str, str | int] = {
            "triton.model_name": trace.model_name,
            "triton.model_version": trace.model_version,
            "triton.trace_id": trace.id,
            "triton.trace_parent_id": trace.parent_id,
        }
        if trace.request_id:
            attributes["triton.request_id"] = trace.request_id
        yield span(
            trace.model_name, ids.model_id, above_id, stamps, attributes=attributes, status=status
        )
    if ids.top_id:
        stamps = [item for item in trace.timestamps if item[0].startswith(_TOP_PREFIXES)]
        yield span(
            "InferRequest", ids.top_id, ids.parent_id, stamps or trace.timestamps, status=status
        )


def _parts(trace: Trace) -> Iterator[tuple[str, _Stamps]]:
    """The stages of a request in its model: how long it waited, how long it was computed."""
    moments = dict(trace.timestamps)
    compute = [(name, moments[name]) for name in _COMPUTE_EVENTS if name in moments]
    if compute and "QUEUE_START" in moments:
        yield "queue", [("QUEUE_START", moments["QUEUE_START"]), compute[0]]
    if compute:
        yield "compute", compute


def _is_of_model(name: str) -> bool:
    """Activities of a backend's own belong to the model too."""
    return not name.startswith(_TOP_PREFIXES) and name not in _COMPUTE_EVENTS
