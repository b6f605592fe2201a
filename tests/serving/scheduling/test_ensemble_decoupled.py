"""Ensembles with decoupled parts: every response flows down on its own. Spec SCH-087."""

from __future__ import annotations

from serving.errors import BackendError
from tests.serving.scheduling.ensemble_bench import Bench, Sent, array, step, tensors, values

DECOUPLED = "model_transaction_policy { decoupled: true }"
ONE = step("d", {"X": "A"}, {"P": "B"})
CHAIN = (step("d", {"X": "A"}, {"P": "m", "Q": "C"}), step("b", {"X": "m"}, {"P": "B"}))


def decoupled(*steps: str, outputs: str = tensors("output", "B")) -> Bench:
    bench = Bench(*steps, outputs=outputs, extra=DECOUPLED)
    bench.add("d", is_decoupled=True)
    return bench


def told(sent: Sent) -> list[tuple[dict[str, list[float]], bool]]:
    return [(values(response), response.is_final) for response in sent.responses]


def test_sch_087_every_response_of_a_decoupled_part_flows_down_on_its_own():
    bench = decoupled(*CHAIN, outputs=tensors("output", "B", "C"))
    sent = bench.send()

    bench["d"].answer({"P": array(1), "Q": array(10)}, is_final=False)
    bench["d"].answer({"P": array(2), "Q": array(20)}, is_final=False)
    bench["d"].answer()
    assert [request.inputs["X"].array.tolist() for request in bench["b"].requests] == [[1], [2]]
    assert not sent.responses

    bench["b"].answer({"P": array(200)}, index=1)
    bench["b"].answer({"P": array(100)})

    assert told(sent) == [({"B": [200.0], "C": [20.0]}, False), ({"B": [100.0], "C": [10.0]}, True)]


def test_sch_087_final_flag_comes_when_every_step_has_ended():
    bench = decoupled(ONE)
    sent = bench.send()
    bench["d"].answer({"P": array(1)}, is_final=False)
    assert told(sent) == [({"B": [1.0]}, False)]
    bench["d"].answer()
    assert told(sent)[1:] == [({}, True)]
    assert sent.responses[-1].is_null
    assert len(bench.executed) == 1


def test_sch_087_last_response_carries_the_final_flag_itself():
    bench = decoupled(ONE)
    sent = bench.send()
    bench["d"].answer({"P": array(1)})
    assert told(sent) == [({"B": [1.0]}, True)]


def test_sch_087_no_response_at_all_is_an_empty_end():
    bench = decoupled(ONE)
    sent = bench.send()
    bench["d"].answer()
    assert told(sent) == [({}, True)]
    assert sent.error is None


def test_sch_087_decoupled_part_behind_a_decoupled_part_multiplies():
    bench = decoupled(step("d", {"X": "A"}, {"P": "m"}), step("f", {"X": "m"}, {"P": "B"}))
    bench.add("f", is_decoupled=True)
    sent = bench.send()
    for number in (1, 2):
        bench["d"].answer({"P": array(number)}, is_final=False)
    bench["d"].answer()
    for number in (1, 2):
        bench["f"].answer({"P": array(number)}, is_final=False)
        bench["f"].answer({"P": array(number)}, is_final=False)
        bench["f"].answer()

    assert [values(response).get("B") for response in sent.responses] == [
        [1.0],
        [1.0],
        [2.0],
        [2.0],
        None,
    ]
    assert [response.is_final for response in sent.responses] == [False] * 4 + [True]


def test_sch_087_error_after_a_response_ends_the_request_with_it():
    bench = decoupled(ONE)
    sent = bench.send()
    bench["d"].answer({"P": array(1)}, is_final=False)
    bench["d"].answer(error=BackendError("broke"), is_final=False)
    bench["d"].answer({"P": array(2)}, is_final=False)
    assert len(sent.responses) == 1
    bench["d"].answer()

    assert [response.is_final for response in sent.responses] == [False, True]
    assert sent.error.message == "in ensemble 'e', step 0 of model 'd': broke"


def test_sch_087_cancellation_reaches_the_decoupled_part_and_what_follows_it():
    bench = decoupled(*CHAIN, outputs=tensors("output", "B", "C"))
    sent = bench.send()
    bench["d"].answer({"P": array(1), "Q": array(1)}, is_final=False)
    sent.request.cancel()

    assert bench["d"].requests[0].is_cancelled
    assert bench["b"].requests[0].is_cancelled
    bench["b"].answer({"P": array(1)})
    assert not sent.responses
    bench["d"].answer()
    assert sent.error.message == "the request to ensemble 'e' was cancelled"


def test_part_that_has_become_decoupled_gives_an_ensemble_that_is_not_its_first_response_only():
    bench = Bench(ONE)
    bench.add("d", is_decoupled=True)
    sent = bench.send()
    bench["d"].answer({"P": array(1)}, is_final=False)
    bench["d"].answer({"P": array(2)}, is_final=False)
    assert not sent.responses
    bench["d"].answer()
    assert told(sent) == [({"B": [1.0]}, True)]
