"""The oldest strategy: a dynamic batcher over the next requests of the candidate sequences.

At most one request of a sequence is in a batch, in any row; who became ready first comes first.
Pure decisions; loop thread. Source: spec SCH-056, SCH-068.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.config.decode import ModelSpec
from serving.request import InferenceRequest
from serving.scheduling.batch import BatchRules, Choice
from serving.scheduling.sequence.lanes import Lane


class OldestRules:
    def __init__(self, spec: ModelSpec) -> None:
        """`spec`: its dynamic batching is that of the strategy."""
        self._rules = BatchRules(spec)

    def choose(self, lane: Lane, now_ns: int) -> Choice:
        """What of `lane.ready` runs now, or until when to wait for more."""
        return self._rules.choose(lane.ready, now_ns, lane.ready_since_ns)

    def rows(self, lane: Lane, chosen: Sequence[InferenceRequest]) -> list[InferenceRequest]:
        """The batch, row by row."""
        return list(chosen)
