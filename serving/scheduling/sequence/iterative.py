"""Iterative sequences: one request that its model executes again and again until it is content.

What the sequence batcher asks when a model has `iterative_sequence`: ids for requests that bring
none, and what a request looks like when it stands in the line once more. Pure; loop thread. Source:
spec SCH-066; ids count from 1 in each model, as in Triton.
"""

from __future__ import annotations

import itertools
from collections.abc import Container

from serving.request import InferenceRequest


class IterativeIds:
    """The ids of sequences that the server opens itself."""

    def __init__(self, *, is_text: bool) -> None:
        self._numbers = itertools.count(1)
        self._is_text = is_text

    def begin(self, request: InferenceRequest, taken: Container[int | str]) -> None:
        """Make a request without an id the first of a sequence; others know what they do."""
        if request.correlation_id:
            return
        for number in self._numbers:
            correlation_id = str(number) if self._is_text else number
            if correlation_id not in taken:
                request.correlation_id = correlation_id
                request.sequence_start = True
                return


def again(request: InferenceRequest, now_ns: int) -> None:
    """The request waits once more: in the midst of its sequence, whatever it said at first."""
    request.sequence_start = request.sequence_end = False
    times = request.times
    times.queue_start_ns = now_ns
    # Of the execution that is over: its end must not be taken for that of the next one.
    times.compute_input_end_ns = times.compute_output_start_ns = times.compute_end_ns = 0
