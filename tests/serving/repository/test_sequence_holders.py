"""Sequences go on where they began. Spec SCH-069, REP-072, REP-083."""

from __future__ import annotations

import gc

from serving.repository.lifecycle import Lifecycle
from serving.scheduling.sequence.lanes import SlotUsage
from tests.serving.repository.fakes import FakeModel


class Holder(FakeModel):
    def __init__(self, version: int, *sequences: int | str) -> None:
        super().__init__("m", version)
        self.sequences = sequences
        self.slot_usage = SlotUsage(4, len(sequences), 0)

    def serves_sequence(self, correlation_id: int | str) -> bool:
        return correlation_id in self.sequences


def lifecycle_with(*models: Holder) -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.finish_load("m", {model.version: model for model in models})
    return lifecycle


def test_a_sequence_stays_with_its_version_when_a_newer_one_is_the_default():
    first, second = Holder(1, 7), Holder(2, 8)
    lifecycle = lifecycle_with(first, second)

    assert lifecycle.resolve("m") is second
    assert lifecycle.sequence_holder("m", -1, 7) is first
    assert lifecycle.sequence_holder("m", -1, 8) is second
    assert lifecycle.sequence_holder("m", 2, 7) is None
    assert lifecycle.sequence_holder("m", -1, 9) is None
    assert lifecycle.sequence_holder("other", -1, 7) is None


def test_a_model_that_was_replaced_or_unloaded_goes_on_with_its_sequences():
    old, new = Holder(1, 7), Holder(1, 8)
    lifecycle = lifecycle_with(old)

    lifecycle.finish_load("m", {1: new})
    assert lifecycle.sequence_holder("m", -1, 7) is old
    lifecycle.begin_unload("m", 1)

    assert lifecycle.sequence_holder("m", 1, 8) is new
    assert lifecycle.sequence_holder("m", -1, 7) is old


def test_a_sequence_that_began_again_on_the_new_model_stays_there():
    old, new = Holder(1, 7), Holder(1, 7)
    lifecycle = lifecycle_with(old)

    lifecycle.finish_load("m", {1: new})

    assert lifecycle.sequence_holder("m", -1, 7) is new


def test_a_model_that_is_gone_is_forgotten():
    lifecycle = lifecycle_with(Holder(1, 7))

    lifecycle.finish_load("m", {1: Holder(1)})
    gc.collect()

    assert lifecycle.sequence_holder("m", -1, 7) is None


def test_requests_can_be_read_by_the_config_of_a_model_that_finishes_its_sequences():
    old = Holder(1, 7)
    lifecycle = lifecycle_with(old, Holder(2))

    lifecycle.begin_unload("m", 1)
    lifecycle.begin_unload("m", 2)

    assert lifecycle.finishing_sequences("m", -1) is old
    assert lifecycle.finishing_sequences("m", 2) is None, "no sequences"
    assert lifecycle.finishing_sequences("other", -1) is None
