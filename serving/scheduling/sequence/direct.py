"""The direct strategy: a sequence's row in the batch is its slot, for its life.

Every row up to the highest one that takes part is sent; rows without a request get a filler. Pure
decisions; loop thread. Source: spec SCH-054, SCH-055, SCH-068.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serving.config.decode import ModelSpec
from serving.request import InferenceRequest
from serving.scheduling.batch import BatchRules, Choice
from serving.scheduling.sequence.lanes import Lane

Filler = Callable[[InferenceRequest], InferenceRequest]


class DirectRules:
    def __init__(self, spec: ModelSpec, filler: Filler) -> None:
        """`filler(like)`: a request for a row that is not ready, with the shapes of `like`."""
        batching = spec.sequence_batching
        self._share = batching.minimum_slot_utilization
        # Without a wanted share there is nothing to wait for (as in Triton).
        self._delay_ns = batching.max_queue_delay_us * 1000 if self._share else 0
        self._rules = BatchRules(spec)
        self._filler = filler

    def choose(self, lane: Lane, now_ns: int) -> Choice:
        """What of `lane.ready` runs now, or until when to wait for more slots to be ready."""
        if not lane.ready:
            return Choice()
        ready, slots = len(lane.ready), len(lane.rows)
        reason = "full" if ready == slots else "queue_empty"
        if self._delay_ns:
            due_ns = min(request.times.queue_start_ns for request in lane.ready) + self._delay_ns
            if ready >= self._share * slots:
                reason = "full" if ready == slots else "preferred"
            elif now_ns < due_ns:
                return Choice(wait_until_ns=due_ns)
            else:
                reason = "delay"
        # The one ready for longest decides on the shape: nobody can be passed over for ever.
        first = next(iter(lane.ready))
        chosen = [item for item in lane.ready if not self._rules.difference(first, item)]
        if len(chosen) < ready:
            reason = "shape"
        return Choice(chosen, len(chosen), reason)

    def rows(self, lane: Lane, chosen: Sequence[InferenceRequest]) -> list[InferenceRequest]:
        """The batch, row by row."""
        if len(lane.rows) == 1:
            return list(chosen)
        places = {lane.ready[request].row: request for request in chosen}
        like = chosen[0]
        return [
            places[row] if row in places else self._filler(like) for row in range(max(places) + 1)
        ]
