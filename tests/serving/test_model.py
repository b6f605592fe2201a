"""One model version, from load to close, over the real identity backend."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from serving.errors import (
    BackendError,
    FailureReason,
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
)
from serving.request import InferenceRequest
from tests.serving.loading import IDENTITY, infer, load, outputs_of, request_of

ROW = np.arange(4, dtype=np.float32).reshape(1, 4)
SLOW = IDENTITY + 'parameters { key: "execute_delay_ms" value { string_value: "30" } }'


@pytest.fixture
async def identity():
    model = await load(IDENTITY)
    yield model
    await model.drain_and_close()


async def test_an_answer_carries_model_version_id_and_outputs(identity):
    response = await infer(identity, request_of({"IN": ROW}, id="a1"))

    assert (response.model_name, response.model_version, response.id) == ("identity", 1, "a1")
    assert response.outputs[0].name == "OUT"
    np.testing.assert_array_equal(response.outputs[0].array, ROW)


async def test_a_request_of_eight_rows_counts_one_success_and_eight_inferences(identity):
    await outputs_of(identity, {"IN": np.zeros((8, 3), np.float32)})

    snapshot = identity.stats.snapshot()
    assert (snapshot.success.count, snapshot.inference_count, snapshot.execution_count) == (1, 8, 1)
    assert snapshot.queue.count == snapshot.compute_infer.count == 1
    assert snapshot.success.total_ns > 0
    assert snapshot.batches[8].count == 1


async def test_a_refused_request_is_answered_at_once_and_is_no_failure(identity):
    answers = []
    request = request_of({"NOPE": ROW})
    request.on_response = answers.append

    identity.infer(request)

    assert isinstance(answers[0].error, InvalidArgumentError)
    assert identity.inflight_count == 0
    snapshot = identity.stats.snapshot()
    assert (snapshot.invalid_count, snapshot.fail.count) == (1, 0)


async def test_requests_beyond_the_instances_wait_and_are_counted_as_queued():
    model = await load(SLOW)
    answers = [asyncio.ensure_future(infer(model, request_of({"IN": ROW}))) for _ in range(3)]

    await asyncio.sleep(0)

    assert (model.queued_count, model.inflight_count) == (2, 3)
    await asyncio.gather(*answers)
    assert (model.queued_count, model.inflight_count) == (0, 0)
    await model.drain_and_close()


async def test_a_request_cancelled_in_the_queue_is_answered_at_once_and_counted():
    model = await load(SLOW)
    first = asyncio.ensure_future(infer(model, request_of({"IN": ROW})))
    await asyncio.sleep(0)
    answers = []
    request = request_of({"IN": ROW})
    request.on_response = answers.append
    model.infer(request)

    request.cancel()

    assert answers[0].error.failure_reason is FailureReason.CANCELED
    assert model.queued_count == 0
    assert model.stats.snapshot().failures[FailureReason.CANCELED] == 1
    assert (await first).error is None
    await model.drain_and_close()


async def test_closing_finishes_what_was_accepted_and_refuses_what_is_new():
    model = await load(SLOW)
    accepted = [asyncio.ensure_future(infer(model, request_of({"IN": ROW}))) for _ in range(3)]
    await asyncio.sleep(0)

    closing = asyncio.ensure_future(model.drain_and_close())
    await asyncio.sleep(0)
    refused = await infer(model, request_of({"IN": ROW}))

    assert "Server is stopping" in refused.error.message
    assert refused.error.failure_reason is FailureReason.REJECTED
    assert [answer.error for answer in await asyncio.gather(*accepted)] == [None] * 3
    await closing
    assert not model.is_ready


async def test_two_instances_run_side_by_side():
    """SCH-021."""
    model = await load(SLOW + "instance_group { count: 2 kind: KIND_CPU }")

    answers = [asyncio.ensure_future(infer(model, request_of({"IN": ROW}))) for _ in range(2)]
    await asyncio.sleep(0)

    assert model.queued_count == 0
    await asyncio.gather(*answers)
    await model.drain_and_close()


async def test_only_requested_outputs_are_returned():
    """SCH-006."""
    model = await load(
        """name: "two" backend: "identity"
        input [{ name: "A" data_type: TYPE_INT32 dims: [1] },
               { name: "B" data_type: TYPE_INT32 dims: [1] }]
        output [{ name: "OA" data_type: TYPE_INT32 dims: [1] },
                { name: "OB" data_type: TYPE_INT32 dims: [1] }]"""
    )
    one = np.array([1], np.int32)

    outputs = await outputs_of(model, {"A": one, "B": one * 2}, outputs=("OB",))

    assert outputs == {"OB": one * 2}
    await model.drain_and_close()


async def test_reshape_hides_the_models_own_shapes_from_callers():
    model = await load(
        """name: "flat" backend: "identity" max_batch_size: 4
        input { name: "IN" data_type: TYPE_FP32 dims: [2, -1] reshape { shape: [-1, 2, 1] } }
        output { name: "OUT" data_type: TYPE_FP32 dims: [2, -1] reshape { shape: [-1, 2, 1] } }"""
    )
    sent = np.arange(12, dtype=np.float32).reshape(2, 2, 3)

    outputs = await outputs_of(model, {"IN": sent})

    np.testing.assert_array_equal(outputs["OUT"], sent)
    await model.drain_and_close()


async def test_log_messages_about_a_request_begin_with_its_id(identity, caplog):
    """LOG-004."""

    def broken(_):
        raise RuntimeError("client is gone")

    for request_id in ("mine", ""):
        request = request_of({"IN": ROW}, id=request_id)
        request.on_response = broken
        identity.infer(request)
        await infer(identity, request_of({"IN": ROW}))

    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [message[: message.index("]") + 1] for message in messages] == [
        "[request id: mine]",
        "[request id: <id_unknown>]",
    ]


async def test_a_broken_callback_does_not_stop_other_answers(identity, caplog):
    def broken(_):
        raise RuntimeError("client is gone")

    request = request_of({"IN": ROW})
    request.on_response = broken
    identity.infer(request)

    response = await infer(identity, request_of({"IN": ROW}))

    assert response.error is None
    assert "a response callback failed" in caplog.text


@pytest.mark.parametrize(
    ("extra", "error", "text"),
    [
        ("instance_group { kind: KIND_GPU }", ModelLoadError, "this machine has no GPU"),
        (
            'parameters { key: "execute_delay_ms" value { string_value: "soon" } }',
            ModelLoadError,
            "load: parameter 'execute_delay_ms' of model 'identity' is 'soon'",
        ),
        (
            'parameters { key: "instance_isolation" value { string_value: "jail" } }',
            ModelLoadError,
            "must be 'process' or 'thread'",
        ),
    ],
)
async def test_a_load_that_fails_names_model_version_phase_and_cause(extra, error, text):
    with pytest.raises(error) as caught:
        await load(IDENTITY + extra)

    assert caught.value.message.startswith("failed to load 'identity' version 1: ")
    assert text in caught.value.message


async def test_labels_are_read_at_load(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")

    model = await load(
        IDENTITY.replace("output {", 'output { label_filename: "labels.txt"'), tmp_path
    )

    assert model.labels_of("OUT") == ["cat", "dog"]
    assert model.labels_of("IN") == []
    await model.drain_and_close()


async def test_a_missing_label_file_fails_the_load_and_is_named(tmp_path):
    with pytest.raises(ServingError, match="unable to read label file 'labels.txt' of output"):
        await load(IDENTITY.replace("output {", 'output { label_filename: "labels.txt"'), tmp_path)


async def test_a_cancelled_request_is_not_enqueued(identity):
    request = InferenceRequest("identity", inputs=request_of({"IN": ROW}).inputs)
    request.cancel()

    response = await infer(identity, request)

    assert response.error.failure_reason is FailureReason.CANCELED
    assert not isinstance(response.error, BackendError)


async def test_passive_instances_are_loaded_and_get_no_work():
    groups = """instance_group { kind: KIND_CPU count: 1 }
    instance_group { kind: KIND_CPU count: 2 passive: true }"""
    model = await load(SLOW + groups)

    answers = [asyncio.ensure_future(infer(model, request_of({"IN": ROW}))) for _ in range(2)]
    await asyncio.sleep(0)

    assert (model.instance_count, model.queued_count) == (1, 1)
    await asyncio.gather(*answers)
    await model.drain_and_close()
