"""Ensembles: tensors through a graph of models, each test one rule. Spec SCH-080..090, SCH-093."""

from __future__ import annotations

import numpy as np
import pytest

from serving.errors import (
    BackendError,
    CancelledError,
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    QueueRejectedError,
    UnavailableError,
)
from serving.request import InferenceRequest
from tests.serving.scheduling.ensemble_bench import Bench, array, step, tensors

ONE = step("a", {"X": "A"}, {"P": "B"})
CHAIN = (step("a", {"X": "A"}, {"P": "m"}), step("b", {"X": "m"}, {"P": "B"}))
SIDE_BY_SIDE = (
    step("a", {"X": "A"}, {"P": "m"}),
    step("b", {"X": "A"}, {"P": "n"}),
    step("c", {"X": "m", "Y": "n"}, {"P": "B"}),
)
TWO_OUTPUTS = tensors("output", "B", "C")
FORK = (
    step("a", {"X": "A"}, {"P": "m", "Q": "B"}),
    step("b", {"X": "m"}, {"P": "n"}),
    step("c", {"X": "n"}, {"P": "C"}),
)


def test_sch_080_version_of_a_step_is_asked_for_and_minus_one_is_the_newest():
    bench = Bench(step("a", {"X": "A"}, {"P": "B"}, version=3))
    bench.add("a", version=3)

    bench.send()

    assert bench["a"].requests[0].model_version == 3
    bench.add("a", version=4)
    with pytest.raises(UnavailableError, match=r"'e', step 0 of model 'a' cannot run.*not found"):
        bench.send()


def test_sch_081_step_starts_when_all_its_tensors_are_there():
    bench = Bench(*SIDE_BY_SIDE)
    sent = bench.send()

    bench["a"].answer({"P": array(1)})
    assert not bench["c"].requests
    bench["b"].answer({"P": array(2)})

    assert {name: item.tolist() for name, item in bench["c"].inputs.items()} == {
        "X": [1.0],
        "Y": [2.0],
    }
    assert not sent.is_answered
    bench["c"].answer({"P": array(3)})
    assert sent.outputs == {"B": [3.0]}


def test_sch_081_steps_that_do_not_need_each_other_run_side_by_side():
    bench = Bench(*SIDE_BY_SIDE)
    bench.send()
    assert len(bench["a"].requests) == len(bench["b"].requests) == 1


def test_sch_081_arrays_are_handed_on_without_a_copy():
    bench = Bench(*CHAIN)
    given, middle, result = array(1), array(2), array(3)

    sent = bench.send({"A": given})
    assert bench["a"].inputs["X"] is given
    bench["a"].answer({"P": middle})
    assert bench["b"].inputs["X"] is middle
    bench["b"].answer({"P": result})

    assert sent.responses[0].outputs[0].array is result


def test_sch_082_steps_for_outputs_that_nobody_asked_for_do_not_run():
    bench = Bench(*FORK, outputs=TWO_OUTPUTS)

    sent = bench.send(outputs=("B",))
    assert [item.name for item in bench["a"].requests[0].requested_outputs] == ["Q"]
    bench["a"].answer({"Q": array(1)})

    assert sent.outputs == {"B": [1.0]}
    assert bench["b"].count == bench["c"].count == 0


def test_sch_082_output_behind_another_output_runs_what_it_needs():
    bench = Bench(
        step("a", {"X": "A"}, {"P": "B"}),
        step("b", {"X": "B"}, {"P": "C"}),
        outputs=TWO_OUTPUTS,
    )
    sent = bench.send(outputs=("C",))
    bench["a"].answer({"P": array(1)})
    bench["b"].answer({"P": array(2)})
    assert sent.outputs == {"C": [2.0]}


def test_sch_082_without_a_list_of_outputs_everything_runs():
    bench = Bench(*FORK, outputs=TWO_OUTPUTS)

    sent = bench.send()
    bench["a"].answer({"P": array(1), "Q": array(2)})
    bench["b"].answer({"P": array(3)})
    assert not sent.is_answered
    bench["c"].answer({"P": array(4)})

    assert sent.outputs == {"B": [2.0], "C": [4.0]}


def test_sch_082_tensor_of_the_request_can_be_an_output_and_needs_no_step():
    bench = Bench(ONE, outputs=tensors("output", "B", "A"))
    sent = bench.send({"A": array(7)}, outputs=("A",))
    assert sent.outputs == {"A": [7.0]}
    assert bench["a"].count == 0


def test_sch_083_requests_of_the_ensemble_go_to_its_parts_at_once_and_are_batched_there():
    bench = Bench(ONE)
    for _ in range(5):
        bench.send()
    assert len(bench["a"].requests) == 5
    assert bench.scheduler.queued_count == 0
    assert bench.scheduler.inflight_count == 5


def test_sch_085_first_error_fails_the_request_when_the_other_steps_have_ended():
    bench = Bench(*SIDE_BY_SIDE)
    sent = bench.send()

    bench["a"].answer(error=BackendError("boom"))
    assert not sent.responses
    bench["b"].answer(error=BackendError("later"))

    assert [response.is_final for response in sent.responses] == [True]
    assert sent.error.message == "in ensemble 'e', step 0 of model 'a': boom"
    assert bench["c"].count == 0


def test_sch_085_error_keeps_its_code_and_counts_as_other():
    bench = Bench(ONE)
    sent = bench.send()
    bench["a"].answer(error=UnavailableError("busy"))
    assert sent.error.code is ErrorCode.UNAVAILABLE
    assert sent.error.failure_reason is FailureReason.OTHER
    assert not bench.executed


def test_sch_085_part_that_refuses_at_once_fails_the_request_once():
    bench = Bench(*SIDE_BY_SIDE)
    bench["a"].refusal = QueueRejectedError("Exceeds maximum queue size")

    sent = bench.send()

    assert bench["b"].count == 0
    assert [response.is_final for response in sent.responses] == [True]
    assert "step 0 of model 'a': Exceeds maximum queue size" in sent.error.message


def test_sch_085_part_that_is_away_is_named_with_its_step():
    bench = Bench(*CHAIN)
    del bench.parts["b"]
    with pytest.raises(UnavailableError, match="in ensemble 'e', step 1 of model 'b' cannot run"):
        bench.send()
    assert bench["a"].count == 0


def test_sch_086_error_of_a_part_tells_which_tensor_was_not_given():
    bench = Bench(*CHAIN)
    sent = bench.send()
    bench["a"].answer({"Q": array(1)})
    assert bench["b"].inputs == {}

    bench["b"].answer(error=InvalidArgumentError("expected 1 inputs but got 0 inputs"))

    assert sent.error.code is ErrorCode.INVALID_ARG
    assert sent.error.message == (
        "in ensemble 'e', step 1 of model 'b': expected 1 inputs but got 0 inputs (its input 'X' "
        "is tensor 'm', which step 0 of model 'a' did not give)"
    )


def test_sch_088_output_that_a_part_leaves_out_is_left_out_of_the_answer():
    bench = Bench(step("a", {"X": "A"}, {"P": "B", "Q": "C"}), outputs=TWO_OUTPUTS)
    sent = bench.send()
    bench["a"].answer({"P": array(1)})
    assert sent.outputs == {"B": [1.0]}
    assert sent.error is None


def test_sch_088_dead_end_lists_what_is_missing_and_who_would_have_to_give_it():
    bench = Bench(
        step("a", {"X": "A", "Y": "n"}, {"P": "m"}),
        step("b", {"X": "m"}, {"P": "n", "Q": "B"}),
    )
    sent = bench.send()
    assert sent.error.code is ErrorCode.INTERNAL
    for word in ("unexpected deadlock", "'B'", "step 0 of model 'a'", "step 1 of model 'b'"):
        assert word in sent.error.message


def test_sch_089_sequence_flags_go_to_every_step_and_into_the_answer():
    bench = Bench(*CHAIN)
    sent = bench.send(correlation_id=7, sequence_start=True, sequence_end=True)
    bench["a"].answer({"P": array(1)})
    request = bench["b"].requests[0]
    bench["b"].answer({"P": array(1)})

    assert (request.correlation_id, request.sequence_start, request.sequence_end) == (7, True, True)
    assert sent.responses[0].parameters == {
        "sequence_id": 7,
        "sequence_start": True,
        "sequence_end": True,
    }


def test_sch_089_part_may_change_the_sequence_for_the_steps_behind_it():
    bench = Bench(*CHAIN)
    bench.send(correlation_id=7, sequence_start=True)
    bench["a"].answer({"P": array(1)}, sequence_id="x", sequence_start=False, sequence_end=True)
    request = bench["b"].requests[0]
    assert (request.correlation_id, request.sequence_start, request.sequence_end) == (
        "x",
        False,
        True,
    )


def test_sch_089_sequence_goes_on_at_the_model_where_it_began():
    bench = Bench(ONE)
    old = bench["a"]
    bench.send(correlation_id=7, sequence_start=True)
    new = bench.add("a", version=2)
    bench.holders["a"] = old

    bench.send(correlation_id=7)
    assert (len(old.requests), len(new.requests)) == (2, 0)
    bench.send(correlation_id=7, sequence_start=True)
    bench.send(correlation_id=8)
    assert (len(old.requests), len(new.requests)) == (2, 2)


def test_sch_090_id_parameters_priority_and_timeout_go_to_every_step():
    bench = Bench(*CHAIN)
    bench.send(id="one", parameters={"k": 1}, priority=2, timeout_us=50)
    bench["a"].answer({"P": array(1)})
    request = bench["b"].requests[0]
    assert (request.id, request.parameters) == ("one", {"k": 1})
    assert (request.priority, request.timeout_us) == (2, 50)


def test_sch_093_optional_input_that_is_not_given_is_not_given_to_the_part_either():
    bench = Bench(
        step("a", {"X": "A", "Y": "O"}, {"P": "B"}),
        inputs=tensors("input", "A") + tensors("input", "O", more="optional: true"),
    )
    bench.send({"A": array(1)})
    bench.send({"A": array(1), "O": array(2)})
    assert [list(request.inputs) for request in bench["a"].requests] == [["X"], ["X", "Y"]]


def test_stages_of_an_ensemble_are_the_sums_over_its_steps():
    bench = Bench(*CHAIN)
    sent = bench.send()
    bench["a"].run(1, 10, 100, 1000)
    bench.clock.advance_us(1111)
    bench["a"].answer({"P": array(1)})
    bench["b"].run(2, 20, 200, 2000)
    bench["b"].answer({"P": array(1)})

    times = sent.request.times
    assert times.compute_start_ns - times.queue_start_ns == 3_000
    assert times.compute_input_end_ns - times.compute_start_ns == 30_000
    assert times.compute_output_start_ns - times.compute_input_end_ns == 300_000
    assert times.compute_end_ns - times.compute_output_start_ns == 3_000_000
    (batch,) = bench.executed
    assert (batch.requests, batch.batch_size) == ([sent.request], 1)


@pytest.mark.parametrize(
    ("ensemble_size", "part_size", "shape", "seen"),
    [
        (0, 8, (4,), (1, 4)),
        (8, 0, (1, 4), (4,)),
        (8, 0, (2, 4), (2, 4)),
        (8, 8, (2, 4), (2, 4)),
    ],
)
def test_batch_axis_of_one_is_added_or_taken_where_models_differ(
    ensemble_size, part_size, shape, seen
):
    bench = Bench(ONE, extra=f"max_batch_size: {ensemble_size}")
    bench.add("a", max_batch_size=part_size)
    sent = bench.send({"A": np.zeros(shape, np.float32)})

    assert bench["a"].requests[0].inputs["X"].shape == seen
    assert bench["a"].inputs["X"].shape == seen
    bench["a"].answer({"P": bench["a"].inputs["X"]})

    (output,) = sent.responses[0].outputs
    assert output.shape == output.array.shape == shape


def test_cancelled_request_cancels_its_steps_and_starts_no_other():
    bench = Bench(*CHAIN)
    sent = bench.send()
    sent.request.cancel()

    assert bench["a"].requests[0].is_cancelled
    assert not sent.responses
    bench["a"].answer({"P": array(1)})

    assert bench["b"].count == 0
    assert sent.error.code is ErrorCode.CANCELLED
    assert sent.error.failure_reason is FailureReason.CANCELED


def test_cancelling_one_step_may_answer_another_at_once():
    bench = Bench(
        step("a", {"X": "A"}, {"P": "B"}),
        step("a", {"X": "A"}, {"P": "C"}),
        outputs=tensors("output", "B", "C"),
    )
    sent = bench.send()

    def release(request: InferenceRequest) -> None:
        # As a part with preserve_ordering does, which held back the answer of the other one.
        while bench["a"].requests:
            bench["a"].answer(error=CancelledError("gone"))

    for request in bench["a"].requests:
        request.on_cancel = release
    sent.request.cancel()

    assert [item.error.code for item in sent.responses] == [ErrorCode.CANCELLED]
    assert bench.scheduler.inflight_count == 0


def test_nested_ensemble_answers_as_a_step_and_is_cancelled_with_the_outer_one():
    inner = Bench(step("a", {"X": "A"}, {"P": "B"}))
    outer = Bench(step("inner", {"A": "A"}, {"B": "m"}), step("b", {"X": "m"}, {"P": "B"}))
    outer.add("inner").ensemble = inner.scheduler

    sent = outer.send()
    inner["a"].answer({"P": array(5)})
    assert outer["b"].inputs["X"].tolist() == [5.0]
    outer["b"].answer({"P": array(6)})
    assert sent.outputs == {"B": [6.0]}

    sent = outer.send()
    sent.request.cancel()
    assert inner["a"].requests[0].is_cancelled
    inner["a"].answer(error=BackendError("stopped"))
    assert sent.error.code is ErrorCode.CANCELLED


def test_error_in_a_nested_ensemble_tells_the_way_to_it():
    inner = Bench(step("a", {"X": "A"}, {"P": "B"}))
    outer = Bench(step("inner", {"A": "A"}, {"B": "B"}))
    outer.add("inner").ensemble = inner.scheduler
    sent = outer.send()
    inner["a"].answer(error=BackendError("boom"))
    assert sent.error.message == (
        "in ensemble 'e', step 0 of model 'inner': in ensemble 'e', step 0 of model 'a': boom"
    )
