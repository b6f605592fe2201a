"""Where a request belongs in a distributed trace: W3C trace context, in and out. Pure.

Source: spec TRC-008, the W3C recommendation "Trace Context" (version 00).
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_LONGEST_STATE = 8192
_random = random.Random()  # noqa: S311 - ids that must be different, not secret


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What a caller says about its own span."""

    trace_id: int
    span_id: int
    state: str = ""
    """Its `tracestate`, handed on as it is."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The numbers of the spans of one traced request, given out when it begins."""

    trace_id: int
    parent_id: int
    """The span above the first of these; 0 where there is none."""
    top_id: int
    """Of the request as a front end sees it; 0 for a call of one model by another."""
    model_id: int
    """Of the request as the model sees it."""
    state: str = ""

    @classmethod
    def of_request(cls, caller: TraceContext | None) -> Spans:
        if caller is None:
            return cls(_random.getrandbits(128) or 1, 0, new_id(), new_id())
        return cls(caller.trace_id, caller.span_id, new_id(), new_id(), caller.state)

    def of_call(self) -> Spans:
        """For a model that the model of these calls."""
        return Spans(self.trace_id, self.model_id, 0, new_id(), self.state)

    @property
    def traceparent(self) -> str:
        """For what is done on behalf of the model's span."""
        return f"00-{self.trace_id:032x}-{self.model_id:016x}-01"


def new_id() -> int:
    return _random.getrandbits(64) or 1


def read_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """None for a header that is absent or broken: the trace then begins here, as W3C wants."""
    match = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent.strip().lower())
    if match is None:
        return None
    trace_id, span_id = int(match[1], 16), int(match[2], 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, (tracestate or "")[:_LONGEST_STATE])
