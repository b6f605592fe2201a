"""One traced request: when it reached what, and the tensors that went in and came out.

Filled on the loop thread; once ended it is only read, by the thread that writes it.
Source: spec TRC-004..010.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.request import InferenceRequest
from serving.response import InferenceResponse
from serving.tracing.context import Spans


@dataclass(frozen=True, slots=True)
class TracedTensor:
    activity: str
    name: str
    datatype: str
    array: NDArray[np.generic]


class Trace:
    """Made by the tracer for a request of a client, by `child` for a call that it makes."""

    def __init__(
        self,
        number: int,
        model_name: str,
        *,
        levels: tuple[bool, bool],
        end: Callable[[Trace], None],
        next_number: Callable[[], int],
        parent: int = 0,
        spans: Spans | None = None,
    ) -> None:
        """`levels`: timestamps, tensors. `spans`: None where the trace goes into a file."""
        self.id = number
        self.parent_id = parent
        self.model_name = model_name
        self.model_version = 0
        self.request_id = ""
        self.error = ""
        """Why the model failed the request."""
        self.spans = spans
        self.timestamps: list[tuple[str, int]] = []
        self.tensors: list[TracedTensor] = []
        self._levels = levels
        self._end = end
        self._next_number = next_number
        self._has_steps = False
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<Trace {self.id} of {self.model_name} parent={self.parent_id}>"

    @property
    def context(self) -> str:
        """The `traceparent` of what is done for this request; empty where it goes into a file."""
        return "" if self.spans is None else self.spans.traceparent

    def child(self, model_name: str, *, is_step: bool = False) -> Trace:
        """For a call of another model that belongs to this request. `is_step`: of an ensemble,
        which computes nothing itself.
        """
        self._has_steps = self._has_steps or is_step
        return Trace(
            self._next_number(),
            model_name,
            levels=self._levels,
            end=self._end,
            next_number=self._next_number,
            parent=self.id,
            spans=None if self.spans is None else self.spans.of_call(),
        )

    def stamp(self, name: str, moment_ns: int = 0) -> None:
        """Now, or at a moment (monotonic nanoseconds) that has been. Backends may too, from the
        thread that executes, under names of their own (TRC-010).
        """
        if self._levels[0]:
            self.timestamps.append((name, moment_ns or time.monotonic_ns()))

    def record(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """One response of the model; the last one says when the request was where."""
        if self._levels[1] and response.error is None:
            self.tensors += [
                TracedTensor("TENSOR_BACKEND_OUTPUT", item.name, item.datatype.name, item.array)
                for item in response.outputs
            ]
        if not response.is_final:
            return
        self.model_version, self.request_id = request.model_version, request.id
        if self._levels[1]:
            self.tensors[:0] = [
                TracedTensor("TENSOR_QUEUE_INPUT", item.name, item.datatype.name, item.array)
                for item in request.inputs.values()
            ]
        if response.error is not None:
            self.error = response.error.message
        if self._levels[0]:
            self._stamp_times(request)
        if self.parent_id:
            self.end()  # nobody else has anything to add to it

    def _stamp_times(self, request: InferenceRequest) -> None:
        times = request.times
        reached = [("REQUEST_START", times.request_start_ns), ("QUEUE_START", times.queue_start_ns)]
        if not self._has_steps:
            reached += [
                ("COMPUTE_START", times.compute_start_ns),
                ("COMPUTE_INPUT_END", times.compute_input_end_ns),
                ("COMPUTE_OUTPUT_START", times.compute_output_start_ns),
                ("COMPUTE_END", times.compute_end_ns),
            ]
        now_ns = time.monotonic_ns()
        self.timestamps += [item for item in reached if item[1]]
        self.timestamps += [("INFER_RESPONSE_COMPLETE", now_ns), ("REQUEST_END", now_ns)]

    def end(self) -> None:
        """Nothing more comes; it goes to the file."""
        if not self._has_ended:
            self._has_ended = True
            self._end(self)

    def as_json(self) -> list[dict[str, Any]]:
        """The entries of a trace file."""
        head: dict[str, Any] = {
            "id": self.id,
            "model_name": self.model_name,
            "model_version": self.model_version,
        }
        if self.request_id:
            head["request_id"] = self.request_id
        if self.parent_id:
            head["parent_id"] = self.parent_id
        entries = [head]
        if self.timestamps:
            moments = [{"name": name, "ns": ns} for name, ns in self.timestamps]
            entries.append({"id": self.id, "timestamps": moments})
        entries += [
            {"id": self.id, "activity": item.activity, "tensor": _tensor_json(item)}
            for item in self.tensors
        ]
        return entries


def _tensor_json(item: TracedTensor) -> dict[str, str]:
    return {
        "name": item.name,
        "data": ",".join(map(_text, item.array.reshape(-1).tolist())),
        "shape": ",".join(map(str, item.array.shape)),
        "dtype": item.datatype,
    }


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(int(value)) if isinstance(value, bool) else str(value)
