"""Answering through a response sender: in the default mode, and in a decoupled model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.backends.python.writing import DECOUPLED, answers, model
from tests.serving.instance.python_models import (
    Execution,
    ask_one,
    context_for,
    hosted,
    output,
    request,
)


async def test_a_sender_answers_in_the_place_of_the_list(tmp_path: Path):
    body = """
sender = requests[0].get_response_sender()
sender.send(ok(3.0))
sender.send(flags=FINAL)
return None
"""
    (response,) = await answers(tmp_path, body)

    assert output(response)[0] == 3
    assert response.is_final


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ("s.send()", "it is needed when flags are 0"),
        ("s.send(ok(), flags=2)", "flags must be 0 or"),
        ("s.send(5)", "expected an InferenceResponse, not int"),
        ("s.send(flags=FINAL)", "sends a response before the final flag"),
        ("s.send(ok()); s.send(ok())", "sends one response only"),
    ],
)
async def test_a_misused_sender_raises_in_the_model(tmp_path: Path, calls: str, told: str):
    body = f"""
s = requests[0].get_response_sender()
try:
    {calls}
except pb_utils.TritonModelException as error:
    return [pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))]
"""
    (response,) = await answers(tmp_path, body)

    assert response.error is not None
    # The list comes after a response that a sender holds: that is refused as well.
    assert told in response.error.message or "in the list as well" in response.error.message


async def test_a_closed_sender_stays_closed_and_the_first_answer_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    body = """
s = requests[0].get_response_sender()
s.send(ok(3.0), flags=FINAL)
try:
    s.send(ok(4.0))
except pb_utils.TritonModelException as error:
    pb_utils.Logger.log_warn(str(error))
return [None]
"""
    (response,) = await answers(tmp_path, body)

    assert output(response)[0] == 3
    assert "the response sender is closed" in caplog.text


async def test_a_decoupled_model_answers_many_times_also_after_execute(tmp_path: Path):
    body = """
def later(sender):
    for value in range(3):
        sender.send(ok(float(value)))
    sender.send(flags=FINAL)
for r in requests:
    threading.Thread(target=later, args=(r.get_response_sender(),)).start()
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        execution = Execution([request(), request()]).start(host)
        last = await execution.finish()

    for had in execution.responses.values():
        assert [item.outputs[0].array[0] for item in had[:-1]] == [0, 1, 2]
    assert all(item.is_final and item.is_null and not item.outputs for item in last)


async def test_a_decoupled_model_hears_that_its_caller_went_away(tmp_path: Path):
    body = """
def later(sender):
    sender.send(ok())
    while not sender.is_cancelled():
        pass
    sender.send(flags=FINAL)
for r in requests:
    threading.Thread(target=later, args=(r.get_response_sender(),)).start()
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        asked = request()
        execution = Execution([asked]).start(host)
        await execution.done
        asked.cancel()

        (response,) = await execution.finish()
    assert response.is_final


async def test_a_decoupled_model_must_not_return_a_list(tmp_path: Path):
    async with hosted(context_for(tmp_path, model("return [ok()]"), DECOUPLED)) as host:
        response = await ask_one(host)

    assert response.error is not None
    assert "a decoupled model must return None" in response.error.message


async def test_a_late_answer_of_a_request_that_has_failed_is_dropped(tmp_path: Path):
    body = """
def later(sender):
    while True:
        try:
            sender.send(ok())
        except Exception:
            return
threading.Thread(target=later, args=(requests[0].get_response_sender(),)).start()
raise ValueError("after all")
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        pid = host.pid
        for _ in range(5):
            (last,) = await Execution([request()]).start(host).finish()
            assert last.error is not None

        assert host.pid == pid
