"""What HTTP adds to the trace of a request: when it came, and when its answer went. Loop thread.

Source: spec TRC-005, TRC-008.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.frontends.http_messages import HttpRequest, HttpResponse, Reply, ResponseStream
from serving.request import InferenceRequest
from serving.tracing.context import read_context

if TYPE_CHECKING:
    from serving.tracing.trace import Trace
    from serving.tracing.tracer import Tracer


def traced(
    tracer: Tracer, model: str, http: HttpRequest, request: InferenceRequest, reply: Reply
) -> Reply:
    """Trace the request if it is its turn; the reply to use from now on."""
    caller = None
    if tracer.is_telemetry:
        caller = read_context(http.header("traceparent"), http.header("tracestate"))
    trace = tracer.sample(model, caller)
    if trace is None:
        return reply
    request.trace = trace
    trace.stamp("HTTP_RECV_START", http.received_ns)
    trace.stamp("HTTP_RECV_END")
    return _TracedReply(trace, reply)


class _TracedReply:
    def __init__(self, trace: Trace, reply: Reply) -> None:
        self._trace = trace
        self._reply = reply

    def __call__(self, response: HttpResponse) -> None:
        self._trace.stamp("HTTP_SEND_START")
        if response.status >= 400:
            self._trace.error = self._trace.error or f"HTTP {response.status}"
        self._reply(response)
        self._trace.stamp("HTTP_SEND_END")
        self._trace.end()

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        self._trace.stamp("HTTP_SEND_START")
        return _TracedStream(self._trace, self._reply.start_stream(response))


class _TracedStream:
    def __init__(self, trace: Trace, stream: ResponseStream) -> None:
        self._trace = trace
        self._stream = stream

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def end(self) -> None:
        self._stream.end()
        self._trace.stamp("HTTP_SEND_END")
        self._trace.end()
