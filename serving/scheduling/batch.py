"""Which of the waiting requests go together into the next batch: a pure decision.

`BatchRules.choose` walks the queue in order of service and never looks further than one batch.
Whole requests only; a request is never split. Behaviour after core/src/dynamic_batch_scheduler.cc
(GetDynamicBatch); spec SCH-030..033. Loop thread; no state after the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from serving.config.decode import ModelSpec
from serving.request import InferenceRequest


@dataclass(slots=True)
class Choice:
    """What to run now (`requests`), or until when to wait (`wait_until_ns`), or neither."""

    requests: list[InferenceRequest] = field(default_factory=list)
    batch_size: int = 0
    reason: str = ""
    wait_until_ns: int = 0


class BatchRules:
    def __init__(self, spec: ModelSpec) -> None:
        batching = spec.dynamic_batching
        self._max_size = max(1, spec.max_batch_size)
        self._preferred = frozenset(batching.preferred_batch_sizes or (self._max_size,))
        self._largest_preferred = max(self._preferred)
        self._delay_ns = batching.max_queue_delay_us * 1000
        self._uniform_inputs = [
            item.name for item in spec.inputs.values() if not item.allow_ragged_batch
        ]
        """Inputs whose shapes must be equal inside a batch; ragged ones may differ."""
        self._must_compare = any(
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
        pending: list[InferenceRequest] = []
        size = 0
        marked, marked_size = 0, 0
        stop = ""
        for request in waiting:
            # A request with zero rows still takes a place.
            grown = size + max(1, request.batch_size)
            if pending:
                if grown > self._largest_preferred and not marked:
                    marked, marked_size = len(pending), size
                if grown > self._max_size:
                    stop = "full"
                    break
                stop = self.difference(pending[0], request)
                if stop:
                    break
            pending.append(request)
            size = grown
            if size in self._preferred:
                marked, marked_size = len(pending), size
        if not pending:
            return Choice()
        since_ns = waits_since_ns or _arrival_ns
        due_ns = min(map(since_ns, pending)) + self._delay_ns
        is_late = self._delay_ns > 0 and now_ns >= due_ns
        if marked and not is_late:
            return Choice(pending[:marked], marked_size, self._preferred_reason(marked_size))
        if stop or size >= self._largest_preferred:
            # Beyond every preferred size: it cannot grow, or was late before it could stop there.
            reason = stop or ("delay" if is_late and size < self._max_size else "full")
            return Choice(pending, size, reason)
        if is_late or self._delay_ns == 0:
            return Choice(pending, size, "delay" if is_late else "queue_empty")
        return Choice(wait_until_ns=due_ns)

    def _preferred_reason(self, size: int) -> str:
        return "preferred" if size in self._preferred and size < self._max_size else "full"

    def difference(self, first: InferenceRequest, request: InferenceRequest) -> str:
        """Why the two cannot share a batch; empty when they can."""
        if not self._must_compare:
            return ""
        if first.inputs.keys() != request.inputs.keys():
            return "optional"
        for name in self._uniform_inputs:
            tensor = request.inputs.get(name)
            if tensor is not None and tensor.shape[1:] != first.inputs[name].shape[1:]:
                return "shape"
        return ""


def _arrival_ns(request: InferenceRequest) -> int:
    return request.times.queue_start_ns
