"""A model may ask to execute a request once more instead of answering it for good (PB-030)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.backends.python.writing import DECOUPLED, model
from tests.serving.instance.python_models import (
    CONFIG,
    Execution,
    ask,
    ask_one,
    context_for,
    hosted,
    output,
    request,
)

AGAIN = "pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"


async def test_pb_030_none_in_the_list_reschedules_a_request_of_the_default_mode(tmp_path: Path):
    body = f"""
requests[0].set_release_flags({AGAIN})
return [None, ok(2.0)]
"""
    async with hosted(context_for(tmp_path, model(body))) as host:
        again, answered = request(), request()
        execution = Execution([again, answered]).start(host)
        await execution.done

        assert execution.batch.rescheduled == [again]
        assert execution.responses[again] == []
        assert output(execution.responses[answered][0]) == [2.0]


async def test_pb_030_a_decoupled_model_reschedules_before_it_returns(tmp_path: Path):
    body = f"""
requests[0].get_response_sender().send(ok(1.0))
requests[0].set_release_flags({AGAIN})
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        again = request()
        execution = Execution([again]).start(host)
        await execution.done

        assert execution.batch.rescheduled == [again]
        assert [item.is_final for item in execution.responses[again]] == [False]


async def test_pb_030_a_request_that_comes_again_is_executed_as_any_other(tmp_path: Path):
    body = f"""
self.seen = getattr(self, "seen", 0) + 1
if self.seen < 3:
    requests[0].set_release_flags({AGAIN})
    return [None]
return [ok(self.seen)]
"""
    async with hosted(context_for(tmp_path, model(body))) as host:
        again = request()
        for _ in range(2):
            await Execution([again]).start(host).done
        (answer,) = await ask(host, again)

        assert output(answer) == [3.0]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (f"requests[0].set_release_flags({AGAIN})\nreturn [ok()]", "expected None"),
        ("requests[0].set_release_flags(7)\nreturn [ok()]", "not 7"),
    ],
)
async def test_a_misused_release_flag_fails_the_request_with_the_rule(
    tmp_path: Path, body: str, told: str
):
    async with hosted(context_for(tmp_path, model(body), CONFIG)) as host:
        response = await ask_one(host)

    assert response.error is not None
    assert told in response.error.message


async def test_a_failed_execution_reschedules_nothing(tmp_path: Path):
    body = f"requests[0].set_release_flags({AGAIN})\nraise ValueError('boom')"

    async with hosted(context_for(tmp_path, model(body))) as host:
        again = request()
        execution = Execution([again]).start(host)
        (response,) = await execution.finish()

    assert execution.batch.rescheduled == []
    assert response.error is not None
    assert "boom" in response.error.message
