"""What both strategies decide, and which one a model has. Loop thread, once a load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from serving.config.decode import DynamicBatching, ModelSpec, TensorSpec
from serving.config.scheduling import Strategy
from serving.request import InferenceRequest
from serving.scheduling.batch import Choice
from serving.scheduling.sequence.direct import DirectRules, Filler
from serving.scheduling.sequence.lanes import Lane
from serving.scheduling.sequence.oldest import OldestRules


class Rules(Protocol):
    """Pure decisions."""

    def choose(self, lane: Lane, now_ns: int) -> Choice:
        """What of `lane.ready` runs now, or until when to wait for more."""

    def rows(self, lane: Lane, chosen: Sequence[InferenceRequest]) -> list[InferenceRequest]:
        """The batch, row by row: the chosen requests, and fillers where a row must stay empty."""


def make_rules(spec: ModelSpec, filler: Filler) -> Rules:
    batching = spec.sequence_batching
    states = {
        item.input_name: TensorSpec(item.input_name, item.datatype, item.dims)
        for item in spec.states
    }
    inner = DynamicBatching(batching.preferred_batch_sizes, batching.max_queue_delay_us)
    spec = replace(spec, inputs={**spec.inputs, **states}, dynamic_batching=inner)
    if batching.strategy is Strategy.OLDEST:
        return OldestRules(spec)
    return DirectRules(spec, filler)
