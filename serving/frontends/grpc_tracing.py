"""Whether a gRPC request is traced, and what its caller says of its own trace. Loop thread.

Source: spec TRC-008.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.tracing.context import read_context

if TYPE_CHECKING:
    from serving.frontends.grpc_head import CallHead
    from serving.tracing.trace import Trace
    from serving.tracing.tracer import Tracer


def sampled(tracer: Tracer, model: str, head: CallHead) -> Trace | None:
    """None when it is not its turn."""
    caller = None
    if tracer.is_telemetry:
        caller = read_context(head.value("traceparent") or None, head.value("tracestate") or None)
    return tracer.sample(model, caller)
