"""An inference request on its way through the core.

A front end builds it and sets `on_response`; from `ModelServer.infer` on the core owns it until
the final response has been delivered. `on_response` runs on the loop thread. Exactly one final
response is delivered for each request, errors included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.datatypes import DataType
from serving.errors import ServingError
from serving.response import InferenceResponse, ParameterValue


@dataclass(slots=True)
class InputTensor:
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    array: NDArray[np.generic]
    """Shaped like `shape`, read-only view of the received bytes; object array for BYTES."""


def request_tag(request_id: str) -> str:
    """How log messages about a request begin (LOG-004)."""
    return f"[request id: {request_id or '<id_unknown>'}]"


class RequestTrace(Protocol):
    """What is written down about a request that is traced (`serving.tracing.trace.Trace`)."""

    @property
    def context(self) -> str:
        """W3C `traceparent` for what is done on its behalf; empty without OpenTelemetry."""

    def child(self, model_name: str, *, is_step: bool = False) -> RequestTrace:
        """For a request that this one makes to another model; `is_step`: as an ensemble."""

    def stamp(self, name: str, moment_ns: int = 0) -> None:
        """Something happened, now or at a moment (monotonic nanoseconds) that has been."""

    def record(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Every response, on its way to the caller. Loop thread."""


class OutputBuffer(Protocol):
    """Memory of the caller's that takes an output (client shared memory)."""

    def write(self, data: bytes | memoryview, output: str) -> None:
        """Any thread. Raises ServingError where the tensor does not fit."""


@dataclass(slots=True)
class RequestedOutput:
    name: str
    classification_count: int = 0
    """Top-k of the classification extension; 0 returns the tensor itself."""
    binary: bool = False
    buffer: OutputBuffer | None = None
    """Where the caller wants the tensor instead of in the answer."""
    parameters: dict[str, ParameterValue] = field(default_factory=dict)


@dataclass(slots=True)
class RequestTimes:
    """Monotonic nanoseconds; 0 means not reached. Names as in Triton's statistics."""

    request_start_ns: int = 0
    queue_start_ns: int = 0
    compute_start_ns: int = 0
    compute_input_end_ns: int = 0
    compute_output_start_ns: int = 0
    compute_end_ns: int = 0
    cache_start_ns: int = 0
    """When the response cache was asked."""
    cache_hit_ns: int = 0
    """How long that took, where the answer comes out of the cache."""


@dataclass(slots=True, eq=False)
class InferenceRequest:
    model_name: str
    model_version: int = -1
    """-1: the highest ready version."""
    id: str = ""
    inputs: dict[str, InputTensor] = field(default_factory=dict)
    requested_outputs: list[RequestedOutput] = field(default_factory=list)
    """Empty: every output of the model."""
    parameters: dict[str, ParameterValue] = field(default_factory=dict)
    correlation_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    priority: int = 0
    timeout_us: int = 0
    on_response: Callable[[InferenceResponse], None] | None = None
    """Set by the caller; loop thread."""

    batch_size: int = 1
    """Set by the model when it has checked the inputs: axis 0, or 1 where batching is off."""
    checked_by: object = None
    """Which `RequestChecks` need not look at it, because they have passed it, or an equal one."""
    times: RequestTimes = field(default_factory=RequestTimes)
    deliver: Callable[[InferenceRequest, InferenceResponse], None] | None = None
    """Set by the model: records statistics, post-processes, then calls on_response. Loop thread."""
    responder: Callable[[InferenceRequest, InferenceResponse], None] | None = None
    """Set by the instance host before execution; may be called from the instance's thread."""
    rescheduler: Callable[[InferenceRequest], None] | None = None
    """Set by the instance host: `reschedule` goes through it; instance's thread."""
    on_cancel: Callable[[InferenceRequest], None] | None = None
    """Set by whoever holds the request and can let go of it at once (a queue). Loop thread."""
    is_cancelled: bool = False
    trace: RequestTrace | None = None
    """Set by a front end where this request is traced."""
    trace_context: str = ""
    """In an instance process: the `context` of the trace, which the worker has."""
    pinned: Any = None
    """Set by an ensemble whose step is an ensemble: the models that this one must use."""

    @property
    def output_names(self) -> list[str]:
        outputs = self.requested_outputs
        return [output.name for output in outputs] if outputs else []

    def cancel(self) -> None:
        """The caller went away. Loop thread; harmless after the final response."""
        self.is_cancelled = True
        if self.on_cancel is not None:
            self.on_cancel(self)

    def respond(self, response: InferenceResponse) -> None:
        """For instances: hand over one response, from any thread."""
        if self.responder is None:
            raise RuntimeError(f"request {self.id!r} is not being executed")
        self.responder(self, response)

    def reschedule(self) -> None:
        """For instances, while they execute: run this request once more, in a later batch.

        Instead of a final response. Only iterative sequences allow it (SCH-066); elsewhere the
        request fails.
        """
        if self.rescheduler is None:
            raise RuntimeError(f"request {self.id!r} is not being executed")
        self.rescheduler(self)

    def respond_error(self, error: ServingError) -> None:
        self.respond(self.error_response(error))

    def error_response(self, error: ServingError) -> InferenceResponse:
        return InferenceResponse(self.model_name, self.model_version, self.id, error=error)
