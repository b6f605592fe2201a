"""The infer route in front of a core that answers when the test says so."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serving.client_memory import ClientMemory
from serving.config.decode import ModelSpec
from serving.datatypes import BY_NAME
from serving.errors import BackendError
from serving.frontends.http_infer import InferRoute
from serving.frontends.http_messages import HttpRequest, HttpResponse, ResponseStream
from serving.options import FrontendOptions
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor
from serving.tracing.tracer import Tracer
from tests.serving.protocol.specs import identity_spec
from tests.waiting import wait_until

BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}


@dataclass
class Core:
    spec: ModelSpec = field(default_factory=identity_spec)
    requests: list[InferenceRequest] = field(default_factory=list)

    def receiver(self, name: str, version: int) -> Any:
        return SimpleNamespace(spec=self.spec, labels_of=lambda output: [])

    def infer(self, request: InferenceRequest) -> None:
        self.requests.append(request)

    def add_state_listener(self, callback: object) -> None: ...

    def answer(self) -> None:
        request = self.requests.pop(0)
        tensor = request.inputs["INPUT0"]
        output = OutputTensor("OUTPUT0", tensor.datatype, tensor.shape, tensor.array)
        assert request.on_response is not None
        request.on_response(InferenceResponse("m", 1, request.id, [output]))


class Replies(list[HttpResponse]):
    def __call__(self, response: HttpResponse) -> None:
        self.append(response)

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        raise AssertionError("infer never streams")


def http(body: bytes | None = None, *headers: tuple[bytes, bytes]) -> HttpRequest:
    data = json.dumps(BODY).encode() if body is None else body
    lower = {name.lower(): value for name, value in headers}
    target = b"/v2/models/m/infer"
    return HttpRequest(b"POST", target, lower, memoryview(data), list(headers))


def route(core: Core, **options: Any) -> InferRoute:
    return InferRoute(core, FrontendOptions(**options), ClientMemory(), Tracer())  # type: ignore[arg-type]


def test_nothing_of_a_request_stays_when_it_is_answered() -> None:
    core, replies = Core(), Replies()
    infer = route(core)
    gc.collect()
    gc.disable()
    try:
        infer.handle(http(), replies, "m", -1)
        core.answer()
        left = [item for item in gc.get_objects() if type(item) is InferenceRequest]
    finally:
        gc.enable()

    assert replies[0].status == 200
    assert left == []


def test_the_returned_cancel_reaches_the_request() -> None:
    core = Core()

    cancel = route(core).handle(http(), Replies(), "m", -1)

    assert cancel is not None
    cancel()
    assert core.requests[0].is_cancelled


def test_an_error_of_the_model_becomes_its_status_and_text() -> None:
    core, replies = Core(), Replies()
    route(core).handle(http(), replies, "m", -1)
    request = core.requests[0]
    assert request.on_response is not None

    request.on_response(request.error_response(BackendError("it broke \ud800")))

    assert replies[0].status == 500
    assert json.loads(bytes(replies[0].parts[0])) == {"error": r"it broke \ud800"}


def test_an_output_that_cannot_be_encoded_is_an_answer_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, replies = Core(), Replies()
    route(core).handle(http(), replies, "m", -1)
    request = core.requests[0]
    assert request.on_response is not None
    broken = OutputTensor("OUTPUT0", BY_NAME["FP32"], (1,), np.array([object()]))

    request.on_response(InferenceResponse("m", 1, outputs=[broken]))

    assert replies[0].status == 500
    assert "cannot encode" in caplog.text


def test_matching_headers_become_parameters() -> None:
    core = Core()
    headers = ((b"X-Fwd-A", b"1"), (b"x-other", b"2"), (b"My-X-Fwd", b"3"))

    route(core, http_header_forward_pattern="X-Fwd").handle(
        http(None, *headers), Replies(), "m", -1
    )

    assert core.requests[0].parameters == {"X-Fwd-A": "1", "My-X-Fwd": "3"}


def test_a_reserved_header_is_not_forwarded() -> None:
    with pytest.raises(Exception, match="priority"):
        route(Core(), http_header_forward_pattern=".*").handle(
            http(None, (b"priority", b"1")), Replies(), "m", -1
        )


def test_a_decoupled_model_is_sent_to_the_stream() -> None:
    with pytest.raises(Exception, match="decoupled"):
        route(Core(identity_spec(is_decoupled=True))).handle(http(), Replies(), "m", -1)


def big_body(count: int = 300_000) -> bytes:
    item = {"name": "INPUT0", "datatype": "FP32", "shape": [count], "data": [0.125] * count}
    return json.dumps({"inputs": [item]}).encode()


async def test_a_large_body_is_decoded_and_its_answer_encoded_beside_the_loop():
    core, replies = Core(), Replies()
    route = InferRoute(core, FrontendOptions(), ClientMemory(), Tracer())

    route.handle(http(big_body()), replies, "m", -1)
    assert core.requests == []
    await wait_until(lambda: core.requests)
    core.answer()
    assert replies == []
    await wait_until(lambda: replies)

    assert replies[0].status == 200
    assert len(json.loads(b"".join(replies[0].parts))["outputs"][0]["data"]) == 300_000


async def test_a_client_that_leaves_while_its_body_is_decoded_is_not_served():
    core, replies = Core(), Replies()
    route = InferRoute(core, FrontendOptions(), ClientMemory(), Tracer())

    cancel = route.handle(http(big_body()), replies, "m", -1)
    assert cancel is not None
    cancel()
    route.handle(http(big_body()), replies, "m", -1)
    await wait_until(lambda: core.requests)

    assert len(core.requests) == 1
    assert replies == []


async def test_a_client_that_leaves_after_the_decoding_cancels_its_request():
    core, replies = Core(), Replies()
    route = InferRoute(core, FrontendOptions(), ClientMemory(), Tracer())

    cancel = route.handle(http(big_body()), replies, "m", -1)
    await wait_until(lambda: core.requests)
    assert cancel is not None
    cancel()

    assert core.requests[0].is_cancelled


async def test_a_fault_of_a_large_body_is_the_clients():
    core, replies = Core(), Replies()
    route = InferRoute(core, FrontendOptions(), ClientMemory(), Tracer())

    route.handle(http(big_body()[:-1]), replies, "m", -1)
    await wait_until(lambda: replies)

    assert replies[0].status == 400
    assert core.requests == []
