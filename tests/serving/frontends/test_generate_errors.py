"""Errors of generate_stream, in front of a core that answers when the test says so."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serving.datatypes import BY_NAME
from serving.errors import BackendError, InvalidArgumentError
from serving.frontends.http_generate import GenerateRoutes
from serving.frontends.http_messages import HttpRequest, HttpResponse
from serving.options import FrontendOptions
from serving.request import InferenceRequest
from serving.response import InferenceResponse, OutputTensor
from serving.tracing.tracer import Tracer
from tests.serving.protocol.specs import identity_spec


class Core:
    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []

    def receiver(self, name: str, version: int) -> Any:
        return SimpleNamespace(spec=identity_spec(), name=name)

    def infer(self, request: InferenceRequest) -> None:
        self.requests.append(request)

    def answer(self, number: float, *, is_final: bool = False) -> None:
        output = OutputTensor("OUT", BY_NAME["FP32"], (1,), np.array([number], np.float32))
        self.respond(InferenceResponse("m", 1, outputs=[output], is_final=is_final))

    def fail(self) -> None:
        self.respond(self.requests[0].error_response(BackendError("it broke")))

    def respond(self, response: InferenceResponse) -> None:
        assert self.requests[0].on_response is not None
        self.requests[0].on_response(response)


class Client:
    """What a client would get: whole responses, or the head and the events of a stream."""

    def __init__(self) -> None:
        self.whole: list[HttpResponse] = []
        self.head: HttpResponse | None = None
        self.events: list[Any] = []
        self.is_ended = False

    def __call__(self, response: HttpResponse) -> None:
        self.whole.append(response)

    def start_stream(self, response: HttpResponse) -> Client:
        self.head = response
        return self

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n\n")
        self.events.append(json.loads(data.removeprefix(b"data: ")))

    def end(self) -> None:
        self.is_ended = True


@pytest.fixture
def core() -> Core:
    return Core()


def stream(core: Core, client: Client, body: bytes = b'{"INPUT0": 1}') -> Any:
    routes = GenerateRoutes(core, FrontendOptions(), Tracer())  # type: ignore[arg-type]
    request = HttpRequest(b"POST", b"/v2/models/m/generate_stream", {}, memoryview(body))
    return routes.stream(request, client, "m", -1)


def test_the_first_response_decides_the_status_and_later_errors_are_events(core: Core) -> None:
    """HTTP-055."""
    client = Client()
    stream(core, client)

    core.answer(1)
    core.fail()

    assert client.head is not None
    assert (client.head.status, client.whole) == (200, [])
    assert client.events[0]["OUT"] == 1
    assert client.events[1] == {"error": "it broke"}
    assert client.is_ended


def test_an_error_before_the_first_response_is_an_ordinary_one(core: Core) -> None:
    """HTTP-055."""
    client = Client()
    stream(core, client)

    core.fail()

    assert [(item.status, item.parts) for item in client.whole] == [
        (500, [b'{"error":"it broke"}'])
    ]
    assert client.head is None
    with pytest.raises(InvalidArgumentError):
        stream(core, client, b"{")


def test_a_client_that_leaves_cancels_its_stream(core: Core) -> None:
    """HTTP-056."""
    cancel = stream(core, Client())
    core.answer(1)

    cancel()

    assert core.requests[0].is_cancelled
