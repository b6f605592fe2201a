"""Whether a gRPC request is traced, and what its caller says of its own trace. Loop thread.

Source: spec TRC-008.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serving.tracing.context import read_context

if TYPE_CHECKING:
    from serving.tracing.trace import Trace
    from serving.tracing.tracer import Tracer


def sampled(tracer: Tracer, model: str, context: Any) -> Trace | None:
    """None when it is not its turn."""
    caller = None
    if tracer.is_telemetry:
        metadata = dict(context.invocation_metadata() or ())
        caller = read_context(metadata.get("traceparent"), metadata.get("tracestate"))
    return tracer.sample(model, caller)
