"""Iterative sequences: a request that its model executes again until it is content. SCH-066."""

from __future__ import annotations

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError
from serving.instance.pool import InstancePool
from serving.request import InferenceRequest, InputTensor
from serving.response import InferenceResponse, OutputTensor
from serving.scheduling.default import DefaultScheduler
from serving.scheduling.sequence.initial_state import read_initial_states
from serving.scheduling.sequence.scheduler import SequenceBatcher
from serving.scheduling.sequence.state import ImplicitState
from tests.fakes import FakeClock
from tests.serving.loading import context_of
from tests.serving.scheduling.hosts import ManualHost

CONTROLS = """
control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1] } }
control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
"""
STATE = 'state { input_name: "S_IN" output_name: "S_OUT" data_type: TYPE_INT32 dims: [1] }'


class Iterating:
    """A sequence batcher over one host, with everything in the test's hands."""

    def __init__(self, sequence: str = "iterative_sequence: true", controls: str = CONTROLS):
        context = context_of(
            'name: "m" max_batch_size: 2 input { name: "IN" data_type: TYPE_INT32 dims: [1] } '
            f"sequence_batching {{ {sequence} {controls} }}"
        )
        self.clock = FakeClock()
        self.host = ManualHost()
        self.pool = InstancePool([self.host])
        states = ImplicitState(context.spec, read_initial_states(context))
        self.batcher = SequenceBatcher(context.spec, self.pool, self.clock, states=states)
        self.answers: list[tuple[str, str]] = []

    def send(self, name: str, **fields: object) -> InferenceRequest:
        array = np.zeros((1, 1), np.int32)
        request = InferenceRequest("m", 1, name, **fields)  # type: ignore[arg-type]
        request.inputs["IN"] = InputTensor("IN", BY_NAME["INT32"], array.shape, array)
        request.deliver = self._deliver
        self.batcher.enqueue(request)
        self.clock.advance_us(0)
        return request

    def seen(self) -> list[str]:
        """Id, and the flags that are set, of each row that runs now."""
        assert self.host.running is not None
        return [
            f"{request.id}{'' if not value('START') else ' start'}{' end' if value('END') else ''}"
            for request in self.host.running.requests
            if (value := lambda name, of=request: of.inputs[name].array.item()) is not None
        ]

    def finish(self, again: tuple[str, ...] = (), outputs: tuple[OutputTensor, ...] = ()) -> None:
        """The running batch is over; requests named in `again` are to be executed once more."""
        batch, done = self.host.running, self.host.done
        assert batch is not None
        assert done is not None
        self.host.running = None
        batch.rescheduled += [item for item in batch.requests if item.id in again]
        left = [item for item in batch.requests if item.id and item.id not in again]
        done(batch)
        for request in left:
            assert request.deliver is not None
            request.deliver(request, InferenceResponse("m", 1, request.id, list(outputs)))
        self.clock.advance_us(0)

    def _deliver(self, request: InferenceRequest, response: InferenceResponse) -> None:
        self.answers.append((request.id, response.error.message if response.error else "ok"))


@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 4 }"])
def test_a_rescheduled_request_runs_again_without_start_and_end(strategy):
    """SCH-066."""
    batching = Iterating(f"iterative_sequence: true {strategy}")
    batching.send("a", correlation_id=9, sequence_start=True, sequence_end=True)

    assert batching.seen() == ["a start end"]
    batching.finish(again=("a",))
    assert batching.seen() == ["a"]
    batching.finish(again=("a",))
    batching.finish()

    assert batching.answers == [("a", "ok")]
    assert batching.batcher.inflight_count == 0


def test_the_times_of_an_execution_are_not_those_of_the_next():
    """Statistics of a model that answers before it ends would count negative durations."""
    batching = Iterating()
    request = batching.send("a")
    request.times.compute_input_end_ns = request.times.compute_end_ns = 5

    batching.finish(again=("a",))

    assert (request.times.compute_input_end_ns, request.times.compute_end_ns) == (0, 0)
    assert request.times.queue_start_ns > 5


def test_a_request_without_an_id_opens_a_sequence_of_its_own():
    """SCH-066: the id is generated and START is set."""
    batching = Iterating()
    first = batching.send("a")
    second = batching.send("b")

    assert (first.correlation_id, second.correlation_id) == (1, 2)
    assert batching.seen() == ["a start"]
    assert first.inputs["ID"].array.item() == 1


def test_a_generated_id_is_none_that_a_client_has_taken():
    batching = Iterating()
    batching.send("a", correlation_id=1, sequence_start=True)

    assert batching.send("b").correlation_id == 2


def test_a_generated_id_is_text_where_the_model_takes_text():
    batching = Iterating(controls=CONTROLS.replace("TYPE_UINT64", "TYPE_STRING"))

    assert batching.send("a").correlation_id == "1"


def test_the_slot_is_free_when_the_request_is_released_normally():
    """SCH-066: without an END."""
    batching = Iterating()
    batching.send("a", correlation_id=9, sequence_start=True)
    batching.finish(again=("a",))
    assert batching.batcher.slot_usage.active == 1
    batching.finish()

    assert batching.batcher.slot_usage.active == 0
    with pytest.raises(InvalidArgumentError, match="must specify the START flag"):
        batching.send("b", correlation_id=9)


def test_a_second_start_of_a_running_sequence_waits_until_the_first_is_released():
    batching = Iterating()
    batching.send("a", correlation_id=9, sequence_start=True)
    batching.send("b", correlation_id=9, sequence_start=True)
    batching.finish(again=("a",))

    assert batching.seen() == ["a"]
    batching.finish()
    assert batching.seen() == ["b start"]


def test_iterations_of_several_requests_share_batches():
    batching = Iterating("iterative_sequence: true oldest { max_candidate_sequences: 4 }")
    batching.send("a")
    batching.send("b")
    batching.finish(again=("a",))

    assert sorted(batching.seen()) == ["a", "b start"]
    batching.finish(again=("b",))
    assert batching.answers == [("a", "ok")]
    assert batching.seen() == ["b"]


def test_order_is_kept_although_requests_run_again():
    batching = Iterating("iterative_sequence: true oldest { preserve_ordering: true }")
    batching.send("a")
    batching.send("b")
    batching.finish(again=("a",))
    batching.finish(again=("a",))
    assert batching.answers == []
    batching.finish()

    assert batching.answers == [("a", "ok"), ("b", "ok")]


def test_a_request_that_was_cancelled_does_not_run_again():
    batching = Iterating()
    request = batching.send("a")
    request.cancel()
    batching.finish(again=("a",))

    ((name, told),) = batching.answers
    assert name == "a"
    assert "cancelled" in told
    assert batching.host.running is None
    assert batching.batcher.slot_usage.active == 0


def test_a_state_goes_through_the_iterations():
    """SCH-062, SCH-066: what a decoupled model sends before it reschedules is the next state."""
    batching = Iterating(f"iterative_sequence: true {STATE}")
    request = batching.send("a")
    for number in (1, 2, 3):
        assert request.inputs["S_IN"].array.item() == number - 1
        state = np.array([[number]], np.int32)
        output = OutputTensor("S_OUT", BY_NAME["INT32"], (1, 1), state)
        assert request.deliver is not None
        request.deliver(request, InferenceResponse("m", 1, "a", [output], is_final=False))
        batching.finish(again=("a",))


@pytest.mark.parametrize("is_iterative", [True, False])
def test_rescheduling_with_any_other_scheduler_is_an_error(is_iterative):
    """SCH-066."""
    batching = Iterating("")
    if not is_iterative:
        batching.batcher = DefaultScheduler("m", batching.pool, batching.clock)  # type: ignore
    batching.send("a", correlation_id=9, sequence_start=True, sequence_end=True)
    batching.finish(again=("a",))

    ((_, told),) = batching.answers
    assert "only a model with sequence_batching and iterative_sequence may" in told
    assert batching.batcher.inflight_count == 0
