"""Which of the waiting requests go together into the next batch, and why it closes there.

`BatchRules.choose` walks the queue in order of service and never looks further than one batch.
Whole requests only; a request is never split. Behaviour after core/src/dynamic_batch_scheduler.cc
(GetDynamicBatch); spec SCH-030..033, SCH-043. Loop thread; no state after the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from serving.config.decode import ModelSpec
from serving.request import InferenceRequest
from serving.scheduling.custom_batching import BatchStrategy

_OPEN = frozenset(("queue_empty", "delay", "preferred"))
"""Reasons of batches that might have grown."""


@dataclass(slots=True)
class Choice:
    """What to run now (`requests`), or until when to wait (`wait_until_ns`), or neither."""

    requests: list[InferenceRequest] = field(default_factory=list)
    batch_size: int = 0
    reason: str = ""
    """See `serving.instance.base.Batch.reason`."""
    wait_until_ns: int = 0

    @property
    def is_closed(self) -> bool:
        """Whatever comes later, it will not be a larger batch."""
        return bool(self.requests) and self.reason not in _OPEN


@dataclass(slots=True)
class _Pending:
    """The requests walked over so far, and the best place to stop."""

    requests: list[InferenceRequest] = field(default_factory=list)
    size: int = 0
    marked: int = 0
    """So many of the requests make a preferred size, or are where growth must stop."""
    marked_size: int = 0
    stop: str = ""
    """Why the next request cannot join; empty while the queue has come to its end."""


class BatchRules:
    def __init__(self, spec: ModelSpec, strategy: BatchStrategy | None = None) -> None:
        batching = spec.dynamic_batching
        self._max_size = max(1, spec.max_batch_size)
        self._preferred = frozenset(batching.preferred_batch_sizes or (self._max_size,))
        self._largest_preferred = max(self._preferred)
        self._delay_ns = batching.max_queue_delay_us * 1000
        self._strategy = strategy
        self._uniform_inputs = [
            item.name
            for item in spec.inputs.values()
            if not item.allow_ragged_batch and not item.is_shape_tensor
        ]
        """Inputs whose shapes must be equal inside a batch; ragged ones may differ."""
        self._equal_inputs = [item.name for item in spec.inputs.values() if item.is_shape_tensor]
        """Inputs whose values must be equal too."""
        self._must_compare = bool(self._equal_inputs) or any(
            item.is_optional or (-1 in item.dims and not item.allow_ragged_batch)
            for item in spec.inputs.values()
        )

    def choose(
        self,
        waiting: Iterable[InferenceRequest],
        now_ns: int,
        waits_since_ns: Callable[[InferenceRequest], int] | None = None,
    ) -> Choice:
        """The next batch out of `waiting` (in order of service), or until when to wait for more.

        `waits_since_ns`: where the queue delay does not count from the arrival of a request.
        """
        pending = self._pending(waiting)
        if not pending.requests:
            return Choice()
        due_ns = 0
        if self._delay_ns:
            oldest_ns = min(map(waits_since_ns or _arrival_ns, pending.requests))
            due_ns = oldest_ns + self._delay_ns
        is_late = self._delay_ns > 0 and now_ns >= due_ns
        size, stop = pending.size, pending.stop
        if pending.marked and not is_late:
            marked_size = pending.marked_size
            reason = self._preferred_reason(marked_size)
            return Choice(pending.requests[: pending.marked], marked_size, reason)
        if stop or size >= self._largest_preferred:
            # Beyond every preferred size: it cannot grow, or was late before it could stop there.
            reason = stop or ("delay" if is_late and size < self._max_size else "full")
            return Choice(pending.requests, size, reason)
        if is_late or not self._delay_ns:
            return Choice(pending.requests, size, "delay" if is_late else "queue_empty")
        return Choice(wait_until_ns=due_ns)

    def _pending(self, waiting: Iterable[InferenceRequest]) -> _Pending:
        if self._strategy is None:
            return self._walk(waiting, None, None)
        state = self._strategy.begin()
        try:
            return self._walk(waiting, self._strategy, state)
        finally:
            self._strategy.end(state)

    def _walk(
        self, waiting: Iterable[InferenceRequest], strategy: BatchStrategy | None, state: object
    ) -> _Pending:
        pending = _Pending()
        requests = pending.requests
        max_size, largest_preferred, preferred = (
            self._max_size,
            self._largest_preferred,
            self._preferred,
        )
        must_compare = self._must_compare
        size = 0
        for request in waiting:
            # A request with zero rows still takes a place.
            grown = size + (request.batch_size or 1)
            if requests:
                if grown > largest_preferred and not pending.marked:
                    pending.marked, pending.marked_size = len(requests), size
                if grown > max_size:
                    pending.stop = "full"
                    break
                if must_compare:
                    pending.stop = self.difference(requests[0], request)
                    if pending.stop:
                        break
            if strategy is not None and not strategy.includes(request, state):
                pending.stop = "custom"
                if not requests:  # it goes alone, or it would never go
                    requests.append(request)
                    size = grown
                break
            requests.append(request)
            size = grown
            if size in preferred:
                pending.marked, pending.marked_size = len(requests), size
        pending.size = size
        return pending

    def _preferred_reason(self, size: int) -> str:
        return "preferred" if size in self._preferred and size < self._max_size else "full"

    def difference(self, first: InferenceRequest, request: InferenceRequest) -> str:
        """Why the two cannot share a batch; empty when they can."""
        if not self._must_compare:
            return ""
        mine, others = first.inputs, request.inputs
        if mine.keys() != others.keys():
            return "optional"
        for name in self._uniform_inputs:
            tensor = others.get(name)
            if tensor is not None and tensor.shape[1:] != mine[name].shape[1:]:
                return "shape"
        for name in self._equal_inputs:
            tensor = others.get(name)
            if tensor is not None and not np.array_equal(tensor.array, mine[name].array):
                return "shape_tensor"
        return ""


def _arrival_ns(request: InferenceRequest) -> int:
    return request.times.queue_start_ns
