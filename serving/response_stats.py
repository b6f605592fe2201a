"""What is counted about the single responses of decoupled models: by their index in a request.

Loop thread only. Source: spec HTTP-073, Triton's statistics extension (response_stats).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serving.errors import FailureReason
from serving.request import InferenceRequest
from serving.response import InferenceResponse

MOST_INDICES = 1000
"""Responses beyond are counted together with the last of these: a stream may have no end."""
_KINDS = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")


class _Row:
    """One response index: count and nanoseconds of each kind."""

    __slots__ = ("counts", "totals_ns")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_KINDS, 0)
        self.totals_ns = dict.fromkeys(_KINDS, 0)

    def add(self, kind: str, duration_ns: int) -> None:
        self.counts[kind] += 1
        self.totals_ns[kind] += duration_ns


@dataclass(slots=True)
class _Progress:
    index: int
    since_ns: int
    """When the former response came, or the request began to be computed."""


class ResponseStats:
    """Of one version of a decoupled model.

    A response took from the one before it (the first: from the start of its execution) until it
    came to the server, `compute_infer`, and then until it was ready to go out, `compute_output`.
    """

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._open: dict[InferenceRequest, _Progress] = {}

    def record(
        self, request: InferenceRequest, response: InferenceResponse, came_ns: int, now_ns: int
    ) -> bool:
        """One response, monotonic times. True: it is the first of its request that has outputs."""
        progress = self._open.get(request)
        if progress is None:
            started_ns = request.times.compute_start_ns or came_ns
            progress = self._open[request] = _Progress(0, started_ns)
        row = self._row(progress.index)
        infer_ns, output_ns = came_ns - progress.since_ns, now_ns - came_ns
        has_outputs = response.error is None and not response.is_null
        if response.error is not None and _is_cancelled(response):
            row.add("cancel", infer_ns + output_ns)
        elif response.is_null:
            row.add("empty_response", infer_ns)
        else:
            row.add("compute_infer", infer_ns)
            row.add("compute_output", output_ns)
            row.add("success" if has_outputs else "fail", infer_ns + output_ns)
        is_first = not progress.index
        progress.index += 1
        progress.since_ns = now_ns
        if response.is_final:
            del self._open[request]
        return is_first and has_outputs

    def as_json(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Index as a string -> kind -> count and nanoseconds."""
        return {
            str(index): {
                kind: {"count": row.counts[kind], "ns": row.totals_ns[kind]} for kind in _KINDS
            }
            for index, row in enumerate(self._rows)
        }

    def _row(self, index: int) -> _Row:
        index = min(index, MOST_INDICES - 1)
        while index >= len(self._rows):
            self._rows.append(_Row())
        return self._rows[index]


def _is_cancelled(response: InferenceResponse) -> bool:
    error = response.error
    return error is not None and error.failure_reason is FailureReason.CANCELED
